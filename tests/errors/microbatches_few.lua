return train{
  model = nn.Linear(4, 6), batch = {input = randn{10, 4}, target = randn{10, 6}}, optimizer = SGD{lr = 0.1}, steps = 1,
  microbatches = 11, loss = function(y, batch) return F.mse_loss(y, batch.target) end,
}
