-- Nothing is cut over ranks and gathered, so nothing can be gathered ahead.
device_mesh{ dp = 2 }

return train{
  model     = nn.Linear(8, 8),
  batch     = {input = randn{4, 8}, y = randn{4, 8}},
  loss      = function(output, batch) return (output - batch.y):square():mean() end,
  optimizer = AdamW{},
  steps     = 1,
  prefetch  = 1,
}
