local mesh = device_mesh{ {"a", 2} }
local model = parallelize(nn.Linear(8, 8), mesh.a, auto{memory = "100B"})
return train{model = model, batch = {input = randn{4, 8}}, loss = function(y) return y:sum() end, optimizer = SGD{lr = 1}, steps = 1}
