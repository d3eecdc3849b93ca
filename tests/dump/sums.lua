-- args: -D dp=2 -D tp=2
-- A step of two batches, with a layer that is fully sharded and one under ZeRO-1: their whole gradients,
-- pending over dp, are added up, and reduced to parts in the update; what ZeRO gathers comes before all
-- else. The third layer is under ZeRO-2: parts are added up.
local mesh = device_mesh{ {"dp", args.dp}, {"tp", args.tp} }
local Model = nn.module("Model", function(self)
  self.a, self.b = nn.Linear(4, 6, {bias = false}), nn.Linear(6, 4, {bias = false})
  self.c = nn.Linear(4, 4, {bias = false})
  function self:forward(x) return self.c(self.b(self.a(x):relu())) end
end)
local model = parallelize(Model(), mesh.tp, {a = Colwise(), b = Rowwise()})
fully_shard(model.a, mesh.dp)
replicate(model.b, mesh.dp, {zero = 1})
replicate(model.c, mesh.dp, {zero = 2})
return train{
  model = model,
  batch = distribute({input = randn{8, 4}}, mesh.dp, Shard(0)),
  loss = function(output) return output:mean() end,
  optimizer = SGD{lr = 0.1, momentum = 0.9},
  clip = 1, accumulate = 2, reduce_each_batch = false, steps = 3,
}
