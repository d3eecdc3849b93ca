-- Numbers among the tensors, a loss of several sums, and a loss that is a number less a sum.
-- mesh: tp=2
-- mesh: tp=3
-- mesh: dp=2
-- mesh: dp=2 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Model = nn.module("Model", function(self)
  self.up = nn.Linear(6, 7)
  self.down = nn.Linear(7, 3)
  function self:forward(x)
    local h = 1 - self.up(x * 2 - 1):sigmoid()
    return 2 / (self.down(h)^2 + 1) - 0.5
  end
end)

return train{
  model = parallelize(Model(), mesh.tp, {up = Colwise(), down = Rowwise()}),
  batch = distribute({input = randn{5, 6}, target = rand{5, 3}}, mesh.dp, Shard(0)),
  loss = function(output, batch)
    local d = output - batch.target
    return 3 - (-(d * d):sum() * 0.1) + d:exp():mean() / 2 + 1
  end,
  optimizer = SGD{lr = 0.2},
  steps = 5, seed = 14,
}
