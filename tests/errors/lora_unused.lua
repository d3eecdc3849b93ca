-- The weight is used without a call of its module.
local M = nn.module("M", function(self)
  self.w = nn.Linear(4, 2)
  function self:forward(x) return F.linear(x, self.w.weight) end
end)
local model = M()
lora(model, {rank = 2, match = "w"})
device_mesh{ {"tp", 1} }
return train{ model = model, batch = {input = randn{3, 4}}, loss = function(y) return y:mean() end,
  optimizer = SGD{}, steps = 1 }
