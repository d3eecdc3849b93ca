local s = ("a"):rep(8 << 20)
return (s .. s):find(s .. "b", 1, true)
