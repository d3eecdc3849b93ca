local mesh = device_mesh{dp = 8}
fully_shard(nn.Linear(4, 4), mesh.dp, {reshard_after_forward = 4})
fully_shard(nn.Linear(4, 4), mesh.dp, {reshard_after_forward = 2})
