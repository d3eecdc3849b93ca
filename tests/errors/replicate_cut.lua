local mesh = device_mesh{dp = 2}
local model = parallelize(nn.Linear(4, 4), mesh.dp, Colwise())
replicate(model, mesh.dp)
return train{
  model = model,
  batch = {input = randn{4, 4}},
  loss = function(output) return output:mean() end,
  optimizer = SGD{},
  steps = 1,
}
