local a, b = ("a"):rep(8 << 20) .. "x", ("a"):rep(8 << 20) .. "y"
while a < b do end
