-- Each layer casts to bfloat16 and back, and turns two dimensions: as they lie in memory that moves nothing,
-- but it casts.
-- mesh: a=2 b=2
-- mesh: b=3
-- cuda: b=3
-- rounds: bfloat16
local mesh = device_mesh{ {"a", args.a or 1}, {"b", args.b or 1} }

local Block = nn.module("Block", function(self)
  function self:forward(x)
    x = x:redistribute(mesh, {Replicate(), Replicate()}, {forward_dtype = "bfloat16"}):to("float32")
    return x:transpose(2, 1)
  end
end)
local Model = nn.module("Model", function(self)
  self.layers, self.output = nn.ModuleList{Block(), Block(), Block(), Block()}, nn.Linear(8, 2)
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.output(x)
  end
end)

return train{
  model = Model(), batch = distribute({input = randn{2, 2, 8}}, mesh.b, Shard(2)),
  loss = function(output) return (output^2):mean() end,
  optimizer = SGD{lr = 0.1}, steps = 3,
}
