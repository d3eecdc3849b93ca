-- Sizes of one: a batch of one row, a hidden layer of one unit, a result of one number.
-- mesh: tp=2
-- mesh: tp=3
-- mesh: dp=2
-- mesh: dp=2 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Model = nn.module("Model", function(self)
  self.a = nn.Linear(1, 4)
  self.b = nn.Linear(4, 1)
  self.c = nn.Linear(1, 5)
  self.d = nn.Linear(5, 1)
  function self:forward(x) return self.d(self.c(self.b(self.a(x):tanh()):tanh()):tanh()) end
end)

return train{
  model = parallelize(Model(), mesh.tp, {
    a = Colwise(), b = Rowwise{output_layouts = Shard(1)}, c = Rowwise(), d = Colwise(),
  }),
  batch = distribute({input = randn{1, 3, 1}, target = randn{1, 3, 1}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return ((output - batch.target)^2):mean() end,
  optimizer = SGD{lr = 0.5},
  steps = 5, seed = 15,
}
