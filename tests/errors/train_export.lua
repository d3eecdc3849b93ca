-- An export of parameters that the model does not have.
local mesh = device_mesh{ {"tp", 1} }
return train{
  model = nn.Linear(4, 4), batch = {input = randn{2, 4}, target = randn{2, 4}}, steps = 1, optimizer = SGD{lr = 1e-2},
  loss = function(y, batch) return F.mse_loss(y, batch.target) end, export = "student.*",
}
