train{
  model = nn.Linear(6, 6), batch = {input = randn{4, 6}}, optimizer = SGD(), steps = 1,
  loss = function(output) return output:flatten():max(0) end,
}
