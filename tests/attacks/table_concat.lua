local t, s = {}, ("x"):rep(1 << 20)
for i = 1, 1000000 do t[i] = s end
return table.concat(t)
