local mesh = device_mesh{ {"pp", 2} }
local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)}
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return x
  end
end)
local model = Model()
pipeline(model, mesh.pp, {microbatches = 2})
return train{
  model = model, batch = {input = randn{4, 4}, target = randn{4, 4}}, optimizer = SGD{lr = 0.1}, steps = 1, accumulate = 2,
  loss = function(y, batch) return F.mse_loss(y, batch.target) end,
}
