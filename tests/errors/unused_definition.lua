-- args: -D tpp=4
local mesh = device_mesh{ {"tp", args.tp or 2} }
local model = parallelize(nn.Linear(10, 5), mesh.tp, Colwise())
infer{model = model, batch = {input = randn{20, 10}}}
