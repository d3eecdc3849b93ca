-- A plan with a setting that makes tpgen take long.
local args = settings{
  {"data", 1, "ranks that share the batch", search = "copies"},
  {"layers", 2, "how many there are", search = {kind = "choice", 9000}},
}
local Net = nn.module("Net", function(self)
  for i = 1, args.layers do self["layer" .. i] = nn.Linear(64, 64) end
  function self:forward(x)
    for i = 1, args.layers do x = F.relu(self["layer" .. i](x)) end
    return x
  end
end)
local mesh = device_mesh{{"data", args.data}}
return train{
  model = Net(), loss = function(y, batch) return F.mse_loss(y, batch.target) end,
  batch = distribute({input = randn{64, 64}, target = randn{64, 64}}, mesh.data, Shard(0)),
  optimizer = SGD{lr = 0.1}, steps = 2,
}
