-- Hooks are off inside finalisers.
for i = 1, 1000 do setmetatable({}, {__gc = function() while true do end end}) end
local t = {}
for i = 1, 1000000 do t = {t} end
error("finalisers do not run")
