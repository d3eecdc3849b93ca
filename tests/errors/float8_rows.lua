-- args: -D dp=2
-- Ranks whose rows of a product in float8 are no multiples of 16.
local mesh = device_mesh{ {"dp", args.dp} }
local model = float8(nn.Linear(16, 16))
return train{
  model = model,
  batch = distribute({input = randn{16, 16}}, mesh.dp, Shard(0)),
  loss = function(y) return y:mean() end,
  optimizer = SGD{lr = 0.1}, steps = 1,
}
