local mesh = device_mesh{ {"copies", 2}, {"dp", 2}, {"tp", 2} }
local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{nn.Linear(4, 4), nn.Linear(4, 4)}
  self.last = nn.Linear(4, 3)
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.last(x)
  end
end)
local model = Model()
fully_shard(model.last, mesh.dp)
fully_shard({model.layers[1], model.last}, mesh.dp)
return train{
  model = model,
  batch = {input = randn{8, 4}, target = randn{8, 3}},
  loss = function(output, batch) return ((output - batch.target)^2):mean() end,
  optimizer = SGD{lr = 0.1},
  steps = 1,
}
