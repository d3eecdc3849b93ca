-- Frozen parameters alone train nothing.
local model = nn.Linear(4, 2)
device_mesh{ {"tp", 1} }
model:requires_grad_(false)
return train{ model = model, batch = {input = randn{3, 4}}, loss = function(y) return y:mean() end,
  optimizer = SGD{}, steps = 1 }
