-- What can be cut in no piece.
local mesh = device_mesh{ {"tp", 2} }
local model = parallelize(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), mesh.tp, {
  ["0"] = Colwise{input_layouts = Shard(0)},
  ["1"] = Rowwise{output_layouts = Shard(0)},
}, {async_tp = 3})
return train{
  model = model,
  batch = {input = randn{20, 8}, target = randn{20, 8}},
  loss = function(y, batch) return F.mse_loss(y, batch.target) end,
  optimizer = AdamW{lr = 1e-3},
  steps = 1,
}
