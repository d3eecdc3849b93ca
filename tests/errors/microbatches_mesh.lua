device_mesh{ {"microbatch", 2} }
return train{
  model = nn.Linear(4, 6), batch = {input = randn{8, 4}, target = randn{8, 6}}, optimizer = SGD{lr = 0.1}, steps = 1,
  microbatches = 2, loss = function(y, batch) return F.mse_loss(y, batch.target) end,
}
