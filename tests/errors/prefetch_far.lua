local model = nn.Linear(4, 4)
return train{ model = model, batch = {input = randn{2, 4}}, loss = function(o) return o:mean() end,
  optimizer = SGD{lr = 0.01}, steps = 1, prefetch = 5 }
