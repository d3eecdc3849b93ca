infer{
  model = nn.Identity(),
  batch = {input = randn{20, 1}},
  outputs = function() return {} end,
}
