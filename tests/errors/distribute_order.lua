local mesh = device_mesh{ {"dp", 2}, {"tp", 2} }
return infer{
  model = nn.Identity(),
  batch = { input = distribute(randn{8, 4}, mesh, {Shard(0, 1), Shard(0, 1)}) },
}
