local M = nn.module("M", function(self)
  self.linear = nn.Linear(6, 6)
  function self:forward(x) return self.linear(x, x) end
end)
infer{model = M(), batch = {input = randn{4, 6}}}
