xpcall(error, function(e) error(e) end, "x")
local function handler() return xpcall(error, handler, "x") end
xpcall(error, handler, "x")
error(handler)
