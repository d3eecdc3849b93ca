-- Means and variances over the dimensions that are sharded and over those that are not, kept or gone.
-- mesh: tp=2
-- mesh: tp=3
-- mesh: tp=4
-- mesh: dp=2 tp=2
-- cuda: dp=2 tp=2
-- mesh: dp=5 tp=3
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Model = nn.module("Model", function(self)
  self.a = nn.Linear(6, 7)
  self.b = nn.Linear(7, 4)
  function self:forward(x)
    local h = self.a(x)
    h = (h - h:mean(-1, true)) / (h:var(-1, true, true) + 1)
    h = h * h:mean({0, 2}, true):tanh() + h:sum(1, true) * 0.1
    return self.b(h)
  end
end)

return train{
  model = parallelize(Model(), mesh.tp, {a = Colwise(), b = Rowwise()}),
  batch = distribute({input = randn{4, 5, 6}, target = randn{4, 5, 4}}, mesh.dp, Shard(0)),
  loss = function(output, batch)
    local d = output - batch.target
    return (d^2):mean({0, 1}):sum() + d:var({0, 2}):mean() + d:var(1, {keepdim = true}):sum() * 0.1
  end,
  optimizer = SGD{lr = 0.05},
  steps = 5, seed = 10,
}
