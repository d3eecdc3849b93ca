-- Columns gathered on the last dimension, and used twice; the second use is the same value.
-- mesh: tp=2
-- mesh: tp=3
-- sanitized: tp=3
-- mesh: tp=8
-- mesh: dp=2 tp=3
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Model = nn.module("Model", function(self)
  self.a = nn.Linear(6, 7)
  self.b = nn.Linear(7, 7)
  self.c = nn.Linear(7, 7, {bias = false})
  self.d = nn.Linear(7, 2)
  function self:forward(x)
    local h = self.a(x):sigmoid()
    return self.d(self.b(h) * self.c(h) + h)
  end
end)

return train{
  model = parallelize(Model(), mesh.tp, {
    a = Colwise{output_layouts = Replicate()},
    b = Colwise{output_layouts = Replicate()},
    c = Colwise(),
    d = Colwise{output_layouts = Replicate()},
  }),
  batch = distribute({input = randn{5, 6}, target = randn{5, 2}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return ((output - batch.target)^2):mean() end,
  optimizer = SGD{lr = 0.3},
  steps = 5, seed = 5,
}
