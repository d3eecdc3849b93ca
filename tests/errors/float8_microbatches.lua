-- Scales over micro-batches, of which a step has one after the other.
local mesh = device_mesh{ {"pp", 1} }
local model = nn.Linear(16, 16)
float8(model)
return train{
  model = model,
  batch = {input = randn{32, 16}},
  loss = function(y) return y:mean() end,
  optimizer = SGD{lr = 0.1}, steps = 1, microbatches = 2,
}
