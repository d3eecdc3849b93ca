local mesh = device_mesh{ {"dp", 2}, {"tp", 2} }
local M = nn.module("M", function(self)
  function self:forward(x)
    return x:redistribute(mesh.dp, Shard(0, "first"))
  end
end)
return infer{ model = M(), batch = { input = randn{8, 4} } }
