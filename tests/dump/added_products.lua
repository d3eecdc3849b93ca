-- Gradients of one input of several products: the later product adds itself to the earlier one's.
local Model = nn.module("Model", function(self)
  self.first = nn.Linear(8, 8, {bias = false})
  self.a = nn.Linear(8, 6, {bias = false})
  self.b = nn.Linear(8, 6, {bias = false})
  self.c = nn.Linear(8, 6, {bias = false})
  function self:forward(x)
    x = self.first(x)
    return self.a(x) * self.b(x) + self.c(x)
  end
end)

local mesh = device_mesh{ {"tp", 2} }
local model = parallelize(Model(), mesh.tp, {["a|b|c"] = Colwise()})

return train{
  model = model,
  batch = distribute({input = randn{4, 8}, target = randn{4, 6}}, mesh.tp, Replicate()),
  loss = function(output, batch) return (output - batch.target):square():mean() end,
  optimizer = SGD{lr = 0.1}, steps = 1,
}
