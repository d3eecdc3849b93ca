-- async_tp: what is worth cutting in pieces, in how many, and what is not or cannot be.
local mesh = device_mesh{ {"tp", 4, bandwidth = 200e9, latency = 3e-6} }
local model = nn.Sequential(nn.Linear(4096, 8192, {bias = false}), nn.Linear(8192, 4096, {bias = false}),
  nn.Linear(4096, 64, {bias = false}), nn.Linear(64, 4096, {bias = false}))
parallelize(model, mesh.tp, {
  ["0"] = Colwise{input_layouts = Shard(0)}, ["1"] = Rowwise{output_layouts = Shard(0)},
  ["2"] = Colwise{input_layouts = Shard(0)}, ["3"] = Rowwise{output_layouts = Shard(0)},
}, {async_tp = true})
return infer{
  model = mixed_precision(model, {param_dtype = "bfloat16"}),
  batch = {x = randn{2048, 4096}},
  outputs = function(model, batch) return {y = model(batch.x)} end,
}
