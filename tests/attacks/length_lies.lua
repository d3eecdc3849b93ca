local t = setmetatable({}, {__len = function() return math.maxinteger end, __index = function() return 3 end})
return randn(t)
