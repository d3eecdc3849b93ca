return train{
  model = nn.Linear(4, 4),
  batch = {input = randn{4, 4}},
  loss = function(output) return output:mean() end,
  optimizer = SGD{},
  steps = 1,
  microbatches = 2,
  metrics = function(output) return {means = output:mean(-1)} end,
}
