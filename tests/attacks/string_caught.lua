-- Out of memory, caught, again and again.
while true do pcall(string.rep, "x", 400 * 1024 * 1024) end
