table.insert(setmetatable({}, {__len = function() return 1 << 53 end}), 1, "x")
