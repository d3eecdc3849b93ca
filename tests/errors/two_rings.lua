-- Two dimensions of the mesh with one method.
local mesh = device_mesh{ {"a", 2}, {"b", 2} }
return infer{model = context_parallel(nn.Linear(4, 4), mesh, {method = {"ring", "ring"}}), batch = {input = randn{4, 4}}}
