-- A pattern that matches no module.
local model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
lora(model, {rank = 2, match = {"1", "wq"}})
device_mesh{ {"tp", 1} }
return train{ model = model, batch = {input = randn{3, 4}}, loss = function(y) return y:mean() end,
  optimizer = SGD{}, steps = 1 }
