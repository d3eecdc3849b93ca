-- Equal layers in a row of which each is itself a row; the last block is not like the others.
-- mesh: tp=2
-- mesh: tp=3
-- mesh: dp=3 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local function block(n)
  return nn.Sequential(nn.Linear(n, 13), nn.Tanh(), nn.Linear(13, n))
end
local model = nn.Sequential(block(7), block(7), block(7), nn.Sequential(nn.Linear(7, 4), nn.Tanh()))

return train{
  model = parallelize(model, mesh.tp, {["[012].0"] = Colwise(), ["[012].2"] = Rowwise()}),
  batch = distribute({input = randn{5, 7}, target = randn{5, 4}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return (output - batch.target):var() end,
  optimizer = SGD{lr = 0.5, weight_decay = 0.1},
  steps = 5, seed = 9,
}
