-- A hook belongs to one coroutine: does a new one have it?
if not coroutine then error("no coroutines here") end
coroutine.wrap(function() while true do end end)()
