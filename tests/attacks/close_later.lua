local m = {}
local x <close> = setmetatable({}, (function() m.__close = print return m end)())
m.__close = function() while true do end end
error("closing")
