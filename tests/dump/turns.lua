-- Where two dimensions of the mesh cut one of a weight, plan.txt tells which of them cuts first.
local mesh = device_mesh{ {"dp", 2}, {"tp", 2} }
local model = parallelize(nn.Linear(8, 8, {bias = false}), mesh.tp, Colwise())
return train{
  model = fully_shard(model, mesh.dp),
  batch = distribute({input = randn{4, 8}, target = randn{4, 8}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.mse_loss(output, batch.target) end,
  optimizer = SGD{lr = 0.1}, steps = 2,
}
