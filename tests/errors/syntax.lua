local model = nn.Linear(10, 5)
local mesh = device_mesh{ {"tp", 2}
train{model = model}
