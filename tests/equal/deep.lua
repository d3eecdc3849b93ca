-- Six layers in a row without a bias, cut by columns and rows in turn, trained with AdamW.
-- mesh: tp=2
-- mesh: tp=3
-- mesh: tp=4
-- mesh: dp=2 tp=2
-- mesh: dp=2 tp=3
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local plain = {bias = false}
local model = nn.Sequential(
  nn.Linear(8, 13, plain), nn.Tanh(), nn.Linear(13, 32, plain), nn.Tanh(),
  nn.Linear(32, 7, plain), nn.Sigmoid(), nn.Linear(7, 13, plain), nn.SiLU(),
  nn.Linear(13, 9, plain), nn.Tanh(), nn.Linear(9, 3, plain))

return train{
  model = parallelize(model, mesh.tp, {
    ["[048]"] = Colwise(), ["[26]"] = Rowwise(), ["10"] = Rowwise(),
  }),
  batch = distribute({input = randn{20, 8}, target = randn{20, 3}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return ((output - batch.target)^2):mean() end,
  -- eps keeps what rounding leaves of a gradient from steering a weight
  optimizer = AdamW{lr = 0.02, eps = 1e-3},
  steps = 5, seed = 2,
}
