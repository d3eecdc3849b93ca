-- A pattern that no parameter matches.
local model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
device_mesh{ {"tp", 1} }
freeze(model, {"0", "1.wieght"})
return train{ model = model, batch = {input = randn{3, 4}}, loss = function(y) return y:mean() end,
  optimizer = SGD{}, steps = 1 }
