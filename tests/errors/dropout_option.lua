infer{
  model = nn.Sequential(nn.Dropout("half")), batch = {input = randn{2}},
}
