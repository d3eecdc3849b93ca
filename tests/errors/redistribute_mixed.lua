local mesh = device_mesh{ {"dp", 2}, {"tp", 2} }
local M = nn.module("M", function(self)
  function self:forward(x)
    local pending = x:redistribute(mesh.tp, Partial())
    return pending:redistribute(mesh.dp, Partial("max"))
  end
end)
return infer{ model = M(), batch = { input = randn{8, 4} } }
