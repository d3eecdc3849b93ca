local m = {}
for i = 1, 1000 do setmetatable({}, m) end
m.__gc = function() while true do end end
for i = 1, 1000 do setmetatable(setmetatable({}, nil), m) end
