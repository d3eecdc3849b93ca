local Inner = nn.module("Inner", function(self)
  function self:forward(x, mask) return x * mask end
end)
local M = nn.module("M", function(self)
  self.inner = Inner()
  function self:forward(x) return self.inner(x, x, 1) end
end)
infer{model = M(), batch = {input = randn{4, 6}}}
