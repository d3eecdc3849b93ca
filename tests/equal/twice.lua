-- One gradient for several parameters: sums of parameters that meet a batch which is cut, and a parameter
-- that is used in several places.
-- mesh: dp=2
-- mesh: dp=3
-- mesh: dp=2 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Model = nn.module("Model", function(self)
  self.p = nn.Parameter{6, init = nn.init.uniform(0.5, 1.5)}
  self.q = nn.Parameter{6, init = nn.init.uniform(0.5, 1.5)}
  self.r = nn.Parameter{6, init = nn.init.uniform(0.5, 1.5)}
  self.up = nn.Linear(6, 7)
  self.down = nn.Linear(7, 6)
  function self:forward(x)
    local h = self.down(self.up((self.p + self.q) * x):tanh())
    return h * (self.r - self.r * self.r) + self.down(self.up(h):tanh())
  end
end)

return train{
  model = parallelize(Model(), mesh.tp, {up = Colwise(), down = Rowwise()}),
  batch = distribute({input = randn{5, 6}, target = randn{5, 6}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return ((output - batch.target)^2):mean() end,
  optimizer = SGD{lr = 0.1},
  steps = 5, seed = 20,
}
