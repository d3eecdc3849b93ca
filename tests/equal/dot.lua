-- A loss that is itself a product comes to what the sum of squares does, which is none, and to its
-- gradients.
-- mesh: form=squares
-- mesh: form=einsum
-- mesh: form=linear
-- mesh: dp=2
-- cuda: dp=2
-- mesh: dp=3 form=linear
local mesh = device_mesh{ {"dp", args.dp or 1} }

local Model = nn.module("Model", function(self)
  self.p = nn.Parameter(randn{4})
  function self:forward(x) return self.p + x end
end)

local losses = {
  product = function(y) return y:matmul(y) end,
  squares = function(y) return (y * y):sum() end,
  einsum = function(y) return F.einsum("a,a->", y, y) end,
  linear = function(y) return F.linear(y:view(1, 4), y:view(1, 4)):squeeze() end,
}

return train{
  model = Model(),
  batch = distribute({input = randn{4}}, mesh.dp, Shard(0)),
  loss = losses[args.form or "product"],
  optimizer = SGD{lr = 0.1}, steps = 3,
}
