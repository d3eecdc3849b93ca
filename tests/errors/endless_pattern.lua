local text = string.rep("a", 100000)
local found = string.find(text, string.rep("a*", 100) .. "b")
