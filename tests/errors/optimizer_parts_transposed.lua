local Model = nn.module("Model", function(self)
  self.proj = nn.Linear(6, 6, {bias = false})
  function self:forward(x) return self.proj(x) end
end)
local mesh = device_mesh{ {"tp", 2} }
local model = parallelize(Model(), mesh.tp, {proj = Colwise{parts = 3}})
local Turned = optimizer{
  name = "Turned",
  update = function(p, g, state, o) return p - o.lr * (g + p:t()) end,
}
return train{
  model = model, batch = {input = randn{4, 6}},
  loss = function(y) return y:mean() end,
  optimizer = Turned{}, steps = 1,
}
