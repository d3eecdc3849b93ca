-- Two layers with a bias whose sizes no mesh divides; more ranks than hidden units or rows.
-- In files of others the biases are one tensor.
-- mesh: tp=2
-- mesh: tp=3
-- mesh: tp=4
-- mesh: tp=8
-- mesh: dp=2 tp=2
-- mesh: dp=3 tp=2
-- mesh: dp=6
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Mlp = nn.module("Mlp", function(self)
  self.up = nn.Linear(10, 7)
  self.relu = nn.ReLU()
  self.down = nn.Linear(7, 3)
  function self:forward(x) return self.down(self.relu(self.up(x))) end
end)

return train{
  model = parallelize(Mlp(), mesh.tp, {up = Colwise(), down = Rowwise()}),
  batch = distribute({input = randn{5, 10}, target = randn{5, 3}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return (output - batch.target):var() end,
  optimizer = SGD{lr = 0.3},
  steps = 5, seed = 1,
  names = {["up.bias"] = {tensor = "biases", dim = 0, part = 2, of = 2},
    ["down.bias"] = {tensor = "biases", dim = 0, part = 1, of = 2}},
}
