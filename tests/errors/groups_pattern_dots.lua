return train{
  model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)), batch = {input = ones{2, 2}},
  loss = function(y) return y:sum() end, steps = 9,
  optimizer = SGD{}, groups = {{match = "1*", lr = 1}},
}
