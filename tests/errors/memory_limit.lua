local mesh = device_mesh{ {"dp", 1}, {"tp", 2}, memory = "100 KiB" }
local model = parallelize(nn.Sequential(nn.Linear(64, 256), nn.ReLU()), mesh.tp, { ["0"] = Colwise() })
return train{
  model = model,
  batch = { input = randn{32, 64} },
  loss = function(out) return out:var() end,
  optimizer = AdamW{lr = 0.1}, steps = 2,
}
