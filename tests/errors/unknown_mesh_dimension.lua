local mesh = device_mesh{ {"dp", 2}, {"tp", 2} }
local model = parallelize(nn.Linear(10, 5), mesh.pp, Colwise())
