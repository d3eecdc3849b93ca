-- A table that grows and shrinks while it is gone over, and an iterator without an end.
local t = {}
for i = 1, 1000 do t["k" .. i] = i end
for k in pairs(t) do t[k .. "x"] = 1 t[k] = nil end
for _ in pairs(setmetatable({}, {__pairs = function() return function() return 1 end end})) do end
