-- Tables for which there is no room are made in each step: all layers make the same ones, and stay a loop.
local Layer = nn.module("Layer", function(self)
  self.q = nn.Linear(8, 8, {bias = false})
  function self:forward(x)
    local cos, sin = F.rotary_tables(131072, 8)
    return x + self.q(x):rotary(cos, sin)
  end
end)

local Model = nn.module("Model", function(self)
  self.first, self.layers = nn.Linear(8, 8, {bias = false}), nn.ModuleList{Layer(), Layer(), Layer()}
  function self:forward(x)
    x = self.first(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return x
  end
end)

local mesh = device_mesh{ {"dp", 2} }
return train{
  model = Model(),
  batch = distribute({input = randn{2, 131072, 8}, target = randn{2, 131072, 8}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return (output - batch.target):square():mean() end,
  optimizer = SGD{lr = 0.1}, steps = 2,
}
