-- Parameters of a model's own, as large as what they are added to: several with one gradient, one that
-- is a factor, a matrix for each row of the batch, and one that nothing reads.
-- mesh: tp=2
-- mesh: tp=3
-- mesh: dp=2
-- mesh: dp=2 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Model = nn.module("Model", function(self)
  self.a = nn.Parameter(randn{4, 5, 6})
  self.b = nn.Parameter(randn{4, 5, 6})
  self.c = nn.Parameter{5, 1, init = nn.init.uniform(0.5, 1.5)}
  self.idle = nn.Parameter(ones{3})
  self.table = nn.Parameter{4, 6, 7, init = nn.init.normal(0, 0.5)}
  self.up = nn.Linear(7, 9, {bias = false})
  self.down = nn.Linear(9, 2)
  self.p = nn.Parameter(zeros{4, 5, 2})
  self.q = nn.Parameter(zeros{4, 5, 2})
  function self:forward(x)
    local h = F.matmul((x + self.a + self.b) * self.c, self.table)
    return self.down(self.up(h):tanh()) + self.p + self.q
  end
end)

return train{
  model = parallelize(Model(), mesh.tp, {up = Colwise(), down = Rowwise()}),
  batch = distribute({input = randn{4, 5, 6}, target = randn{4, 5, 2}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return ((output - batch.target)^2):sum() * 0.1 end,
  optimizer = SGD{lr = 0.05},
  steps = 5, seed = 13,
}
