return train{
  model = nn.Linear(2, 2), batch = {input = ones{2, 2}}, loss = function(y) return y:sum() end,
  steps = 9,
  optimizer = SGD{}, schedule = WSD{warmup = 5, decay = 5},
}
