-- A kernel computes the indices by which it gathers, and several elements at once: no element is read before its
-- own index is there.
-- mesh: a=2
-- cuda: a=2
local mesh = device_mesh{ {"a", args.a or 1} }

local Model = nn.module("Model", function(self)
  self.first = nn.Linear(4, 4)
  function self:forward(x)
    local largest = (self.first(x):topk(2, 0))
    return (largest * 2 - 0.5):square()
  end
end)

local batch = distribute({input = randn{8, 6, 4}}, mesh.a, Shard(1))
return train{
  model = Model(), batch = batch,
  loss = function(output) return output:mean() end,
  optimizer = SGD{lr = 0.1}, steps = 3, seed = 3,
}
