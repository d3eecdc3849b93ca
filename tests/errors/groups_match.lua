return train{
  model = nn.Linear(2, 2), batch = {input = ones{2, 2}}, loss = function(y) return y:sum() end,
  steps = 9,
  optimizer = SGD{}, groups = {{lr = 1}},
}
