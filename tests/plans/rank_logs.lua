-- Three samples on two ranks: rank 0 has two of them, and works twice as long as rank 1.
local mesh = device_mesh{ {"dp", 2} }
local model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))

return train{
  model = model,
  batch = distribute({input = randn{3, 64, 256}, target = randn{3, 64, 256}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.mse_loss(output, batch.target) end,
  optimizer = SGD{lr = 0.01},
  steps = 8,
}
