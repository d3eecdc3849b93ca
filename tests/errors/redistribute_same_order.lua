local mesh = device_mesh{ {"dp", 2}, {"tp", 2} }
local M = nn.module("M", function(self)
  function self:forward(x)
    return x:redistribute(mesh, {Shard(0, 1), Shard(-2, 1)})
  end
end)
return infer{ model = M(), batch = { input = randn{8, 4} } }
