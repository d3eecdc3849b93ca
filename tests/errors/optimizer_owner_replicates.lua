local Own = optimizer{
  name = "Own", update = function(p, x, state, o) return p - o.lr * x:to_owner():replicate():mean() end,
}
local mesh = device_mesh{ {"dp", 1} }
return train{
  model = nn.Linear(4, 3, {bias = false}), batch = distribute({input = randn{4, 4}}, mesh.dp, Shard(0)),
  loss = function(y) return y:mean() end,
  optimizer = Own{}, steps = 1,
}
