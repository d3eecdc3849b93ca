-- A mesh of a dimension that says another thing each time it is asked.
local n = 0
local liar = setmetatable({}, {
  __len = function() return 2 end,
  __pairs = function() return function() n = n + 1 return "bandwidth", 0 / 0 end end,
  __index = function() n = n + 1 return n end,
  __lt = function() return true end,
  __tostring = function() return string.rep("x", 1 << 20) end,
})
return infer{ model = nn.Identity(), batch = { input = randn{4} } , device_mesh{ {"dp", 2, bandwidth = liar}, liar } }
