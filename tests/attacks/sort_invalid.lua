local t = {}
for i = 1, 100000 do t[i] = i % 7 end
table.sort(t, function() return true end)
