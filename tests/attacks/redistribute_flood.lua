-- The memory is tpgen's here, not Lua's: each turn would be a plan of its own.
local mesh = device_mesh{ {"a", 2}, {"b", 3}, {"c", 4} }
local M = nn.module("M", function(self)
  function self:forward(x)
    while true do
      x = x:redistribute(mesh, {Shard(0, 2), Shard(0, 1), Shard(0, 0)})
      x = x:redistribute(mesh, {Partial("max"), Shard(1), Partial("max")})
    end
  end
end)
return infer{ model = M(), batch = { input = randn{7, 5} } }
