-- A projection in parts has no adapter.
local mesh = device_mesh{ {"tp", 1} }
local model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
parallelize(model, mesh.tp, {["0"] = Colwise{parts = 3}})
lora(model, {rank = 2, match = "0"})
return train{ model = model, batch = {input = randn{3, 4}}, loss = function(y) return y:mean() end,
  optimizer = SGD{}, steps = 1 }
