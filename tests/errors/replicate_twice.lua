local mesh = device_mesh{dp = 2}
local model = nn.Linear(4, 4)
fully_shard(model, mesh.dp)
replicate(model, mesh.dp)
