-- args: -D dp=2 -D tp=2
-- A step of two batches: gradients are added up where they lie, and summed over the ranks in the update;
-- their norm; what the optimizer keeps.
local mesh = device_mesh{ {"dp", args.dp}, {"tp", args.tp} }
local Model = nn.module("Model", function(self)
  self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4, {bias = false})
  function self:forward(x) return self.down(self.up(x):relu()) end
end)
return train{
  model = parallelize(Model(), mesh.tp, {up = Colwise(), down = Rowwise()}),
  batch = distribute({input = randn{8, 4}}, mesh.dp, Shard(0)),
  loss = function(output) return output:mean() end,
  optimizer = SGD{lr = 0.1, momentum = 0.9},
  clip = 1, accumulate = 2, steps = 3,
}
