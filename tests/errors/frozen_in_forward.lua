-- Inside a forward it is too late.
local M = nn.module("M", function(self)
  self.w = nn.Parameter(randn{4})
  function self:forward(x) return x * self.w:requires_grad_(false) end
end)
device_mesh{ {"tp", 1} }
return train{ model = M(), batch = {input = randn{3, 4}}, loss = function(y) return y:mean() end,
  optimizer = SGD{}, steps = 1 }
