local names = {[print] = 1}
for key in pairs(names) do print(key) end
