local t = {}
for i = 1, 100000 do t[i] = i end
table.sort(t, function(a, b) return #("x"):rep(100000000) > a + b end)
