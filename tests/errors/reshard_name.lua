local mesh = device_mesh{ {"dp", 8}, {"dp_within", 1} }
local model = nn.Linear(4, 4)
fully_shard(model, mesh.dp, {reshard_after_forward = 4})
return train{
  model = model,
  batch = {input = randn{4, 4}},
  loss = function(output) return output:mean() end,
  optimizer = SGD{},
  steps = 1,
}
