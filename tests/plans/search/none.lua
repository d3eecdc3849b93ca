local args = settings{{"lr", 0.1, "the rate"}}
return train{
  model = nn.Linear(2, 2), batch = {input = randn{4, 2}, target = randn{4, 2}}, optimizer = SGD{lr = args.lr}, steps = 1,
  loss = function(y, b) return F.mse_loss(y, b.target) end,
}
