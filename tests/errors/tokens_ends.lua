-- Documents whose ends no input gives.
local mesh = device_mesh{ {"tp", 1} }
return train{
  model = nn.Embedding(8, 8), batch = {input = tokens(8, {ends = "ends"}){2, 4}, ends = randn{2, 4}}, steps = 1,
  optimizer = SGD{lr = 1e-2}, loss = function(y) return y:mean() end,
}
