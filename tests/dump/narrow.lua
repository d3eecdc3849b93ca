-- args: -D dp=2
-- A module of tpgen's own with a policy: its input is cast, its parameters are cast before they are gathered.
local mesh = device_mesh{ {"dp", args.dp} }
local model = nn.Linear(3, 5)
fully_shard(model, mesh.dp, {param_dtype = "bfloat16", output_dtype = "float32"})
return infer{model = model, batch = distribute({input = randn{4, 3}}, mesh.dp, Shard(0))}
