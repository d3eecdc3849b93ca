local mesh = device_mesh{ {"a", 2}, {"b", 2} }
local model = nn.Linear(8, 8)
parallelize(model, mesh, auto{parameter = 100})
