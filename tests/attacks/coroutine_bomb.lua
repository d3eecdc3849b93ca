if not coroutine then error("no coroutines here") end
local function f() return coroutine.wrap(f)() end
local kept = {}
while true do kept[#kept + 1] = coroutine.create(function() while true do end end) pcall(f) end
