local mesh = device_mesh{ {"a", 2}, {"b", 2}, {"c", 2}, {"d", 2}, {"e", 2} }
local model = nn.Linear(8, 8)
parallelize(model, mesh, auto())
return train{model = model, batch = {input = randn{4, 8}}, loss = function(y) return y:sum() end, optimizer = SGD{lr = 1}, steps = 1}
