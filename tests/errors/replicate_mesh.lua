local mesh = device_mesh{ {"a", 2}, {"b", 2}, {"c", 2} }
replicate(nn.Linear(4, 4), mesh, {zero = 1})
