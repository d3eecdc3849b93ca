kept = setmetatable({}, {__gc = function() while true do end end})
error("and now it ends")
