-- A model from a file beside the plan: its lines are that file's.
local net = require "required.net"
assert(net == require "required/net")
local mesh = device_mesh{ {"tp", 2} }
return train{
  model = parallelize(net(), mesh.tp, {a = Colwise(), b = Rowwise()}),
  batch = {input = randn{4, 8}, target = randn{4, 8}},
  loss = function(output, batch) return F.mse_loss(output, batch.target) end,
  optimizer = SGD{lr = 0.1},
  steps = 3,
}
