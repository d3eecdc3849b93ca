-- An adapter is for a Linear.
local model = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 2))
lora(model, {rank = 2, match = "0"})
device_mesh{ {"tp", 1} }
return train{ model = model, batch = {input = randn{3, 4}}, loss = function(y) return y:mean() end,
  optimizer = SGD{}, steps = 1 }
