local mesh = device_mesh{ {"dp", 2}, {"tp", 2} }
local M = nn.module("M", function(self)
  function self:forward(x)
    return x:redistribute(mesh.dp, Partial("max"))
  end
end)
return infer{ model = M(), batch = { input = ones{8, dtype = "bool"} } }
