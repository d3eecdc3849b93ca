local mesh = device_mesh{ {"a", 2}, {"b", 2} }
local model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
parallelize(model, mesh.a, {["0"] = Colwise()})
parallelize(model, mesh.b, {["0"] = Rowwise()})
parallelize(model, mesh, {["0"] = Colwise(), ["**"] = auto()})
return train{model = model, batch = {input = randn{4, 8}}, loss = function(y) return y:sum() end, optimizer = SGD{lr = 1}, steps = 1}
