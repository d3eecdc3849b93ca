-- A type that weights are not stored as.
local mesh = device_mesh{ {"tp", 1} }
store_frozen(nn.Linear(64, 64), "fp4")
