-- One input for three layers, their outputs multiplied and divided; values that several read.
-- mesh: tp=2
-- mesh: tp=3
-- mesh: tp=4
-- mesh: dp=2 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Model = nn.module("Model", function(self)
  self.q = nn.Linear(6, 7)
  self.k = nn.Linear(6, 7)
  self.v = nn.Linear(6, 7)
  self.out = nn.Linear(7, 3)
  function self:forward(x)
    local q, k, v = self.q(x), self.k(x), self.v(x)
    local h = q * k / (v^2 + 1) - (-v):exp() * 0.1 + q
    return self.out(h:tanh()) + self.out(v)
  end
end)

return train{
  model = parallelize(Model(), mesh.tp, {["[qkv]"] = Colwise(), out = Rowwise()}),
  batch = distribute({input = randn{5, 6}, target = randn{5, 3}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return ((output - batch.target)^2):mean() end,
  optimizer = SGD{lr = 0.1},
  steps = 5, seed = 7,
}
