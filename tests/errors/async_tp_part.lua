-- Parts of 10 are not cut in 3.
local mesh = device_mesh{ {"tp", 2} }
local model = nn.Sequential(nn.Linear(8, 8, {bias = false}), nn.Linear(8, 8, {bias = false}), nn.ReLU())
parallelize(model, mesh.tp, {["0"] = Colwise(), ["1"] = Rowwise{output_layouts = Shard(0)}}, {async_tp = 3})
return infer{
  model = model, batch = {x = randn{20, 8}},
  outputs = function(model, batch) return {y = model(batch.x)} end,
}
