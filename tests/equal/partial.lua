-- Sums that the plan leaves pending, and what may be done with them before they are finished.
-- mesh: tp=2
-- mesh: tp=3
-- mesh: dp=2 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Model = nn.module("Model", function(self)
  self.up = nn.Linear(6, 7)
  self.down = nn.Linear(7, 5, {bias = false})
  self.gain = nn.Parameter{5, init = nn.init.uniform(0.5, 1.5)}
  self.shift = nn.Parameter(randn{5})
  self.last = nn.Linear(5, 3)
  function self:forward(x)
    local h = self.down(self.up(x):tanh())
    return self.last(-(h * self.gain) / 2 + self.shift + h:mean(0, true))
  end
end)

return train{
  model = parallelize(Model(), mesh.tp, {
    up = Colwise(), down = Rowwise{output_layouts = Partial()},
  }),
  batch = distribute({input = randn{5, 6}, target = randn{5, 3}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return ((output - batch.target)^2):mean() end,
  optimizer = SGD{lr = 0.3},
  steps = 5, seed = 16,
}
