-- A list of placements that says another thing each time it is asked.
local mesh = device_mesh{ {"dp", 2, bandwidth = 1e17, latency = 1e-12}, {"tp", 2} }
local n = 0
local liar = setmetatable({}, {
  __len = function() return math.maxinteger end,
  __pairs = function() return function() n = n + 1 return n, Shard(n % 9) end end,
  __index = function() n = n + 1 return Shard(0, n % 3) end,
})
local M = nn.module("M", function(self)
  function self:forward(x) return x:redistribute(mesh, liar, liar) end
end)
return infer{ model = M(), batch = { input = distribute(randn{4, 4}, mesh, liar) } }
