local t, seen = {}, {}
for i = 1, 50 do t[{}] = i end
for _, v in pairs(t) do seen[#seen + 1] = v end
error("leak: " .. table.concat(seen, " "))
