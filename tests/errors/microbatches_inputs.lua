return train{
  model = nn.Linear(4, 6), batch = {input = randn{8, 4}, target = randn{4, 6}}, optimizer = SGD{lr = 0.1}, steps = 1,
  microbatches = 4, loss = function(y, batch) return y:sum() + batch.target:sum() end,
}
