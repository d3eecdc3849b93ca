-- A piece of what lies inside of another dimension is no run of it.
local mesh = device_mesh{ {"tp", 2} }
local model = nn.Sequential(nn.Linear(8, 8, {bias = false}), nn.Linear(8, 8, {bias = false}), nn.ReLU())
parallelize(model, mesh.tp, {["0"] = Colwise(), ["1"] = Rowwise{output_layouts = Shard(1)}}, {async_tp = 5})
return infer{
  model = model, batch = {x = randn{3, 20, 8}},
  outputs = function(model, batch) return {y = model(batch.x)} end,
}
