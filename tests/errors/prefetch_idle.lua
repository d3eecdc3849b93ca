-- args: --target cuda
local mesh = device_mesh{ {"dp", 4} }
local model = nn.Linear(64, 64)
fully_shard(model, mesh.dp)
return train{
  model = model, batch = distribute({input = randn{8, 64}}, mesh.dp, Shard(0)),
  loss = function(o) return o:square():mean() end, optimizer = SGD{lr = 0.01}, steps = 1, prefetch = 1,
}
