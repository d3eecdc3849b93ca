-- The order of a table's keys is that of a hash whose seed differs in every process.
local t, seen = {}, {}
for i = 1, 200 do t["key" .. i * 7919] = i end
for _, v in pairs(t) do seen[#seen + 1] = v end
error("leak: " .. table.concat(seen, " "))
