-- Ranks whose parts are not of one size give no equal pieces.
local mesh = device_mesh{ {"tp", 2} }
local model = nn.Sequential(nn.Linear(8, 8, {bias = false}), nn.Linear(8, 8, {bias = false}), nn.ReLU())
parallelize(model, mesh.tp, {["0"] = Colwise(), ["1"] = Rowwise{output_layouts = Shard(0)}}, {async_tp = 5})
return infer{
  model = model, batch = {x = randn{21, 8}},
  outputs = function(model, batch) return {y = model(batch.x)} end,
}
