-- A message of several thousand letters is shown whole.
local names = {}
for i = 1, 300 do names[i] = "operator" .. i end
error("these are missing: " .. table.concat(names, ", "))
