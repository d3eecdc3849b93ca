-- A recipe that float8 does not have.
local mesh = device_mesh{ {"tp", 1} }
float8(nn.Linear(64, 64), {recipe = "blockwise"})
