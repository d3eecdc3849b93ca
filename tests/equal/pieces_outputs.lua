-- What travels in pieces comes where an output will be, which is made of it element by element.
-- mesh: tp=2
-- mesh: tp=3
local mesh = device_mesh{ {"tp", args.tp or 1} }
local model = nn.Sequential(nn.Linear(8, 12, {bias = false}), nn.Linear(12, 8, {bias = false}), nn.ReLU())
parallelize(model, mesh.tp, {
  ["0"] = Colwise{input_layouts = Shard(0)}, ["1"] = Rowwise{output_layouts = Shard(0)},
}, {async_tp = args.tp and 4})

return infer{
  model = model, batch = {x = randn{24, 8}}, seed = 5,
  outputs = function(model, batch) return {y = model(batch.x)} end,
}
