-- A Linear whose sizes are no multiples of 16.
local mesh = device_mesh{ {"tp", 1} }
float8(nn.Linear(64, 40))
