local mesh = device_mesh{ {"tp", 2} }
local M = nn.module("M", function(self)
  self.w = nn.Parameter(distribute(randn{6, 16}, mesh.tp, Partial()))
  function self:forward(x) return x:matmul(self.w) end
end)
infer{model = M(), batch = {input = randn{4, 6}}}
