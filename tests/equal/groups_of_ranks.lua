-- Groups of parameters of which some ranks have no part: their programs have no learning rate for them.
-- mesh: dp=5
-- mesh: dp=3 tp=2
-- cuda: dp=5
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local Model = nn.module("Model", function(self)
  self.up, self.down, self.scale = nn.Linear(6, 10), nn.Linear(10, 5), nn.Parameter(ones{2})
  function self:forward(x) return self.down(F.relu(self.up(x))) * self.scale:sum() end
end)
local model = parallelize(Model(), mesh.tp, {up = Colwise(), down = Rowwise()})
fully_shard(model, mesh.dp)

return train{
  model = model,
  batch = distribute({input = randn{10, 6}, target = randn{10, 5}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.mse_loss(output, batch.target) end,
  optimizer = AdamW{lr = 0.02, eps = 1e-3}, groups = {{match = "scale", optimizer = SGD{lr = 0.1}}}, steps = 3, seed = 3,
}
