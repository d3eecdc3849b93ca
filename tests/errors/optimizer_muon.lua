local mesh = device_mesh{ {"dp", 1} }
return train{
  model = nn.Linear(4, 4), batch = distribute({input = randn{4, 4}}, mesh.dp, Shard(0)),
  loss = function(y) return y:mean() end,
  optimizer = Muon{}, steps = 1,
}
