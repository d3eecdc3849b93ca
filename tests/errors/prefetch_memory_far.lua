-- args: --target cuda
local mesh = device_mesh{ {"dp", 4}, memory = "1045MiB" }
local Model = nn.module("Model", function(self)
  local layers = {}
  for i = 1, 4 do layers[i] = nn.Linear(512, 512, {bias = false}) end
  self.layers = nn.ModuleList(layers)
  function self:forward(x)
    x = F.tanh(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return x
  end
end)
local model = Model()
for _, layer in ipairs(model.layers) do fully_shard(layer, mesh.dp) end
return train{
  model = model, batch = distribute({input = randn{64, 512}}, mesh.dp, Shard(0)),
  loss = function(o) return o:square():mean() end, optimizer = SGD{lr = 0.01}, steps = 1, prefetch = 2,
}
