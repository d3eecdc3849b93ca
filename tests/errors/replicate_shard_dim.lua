local mesh = device_mesh{dp = 2}
replicate(nn.Linear(4, 4), mesh.dp, {shard_dim = 1})
