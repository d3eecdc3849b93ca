return string.pack("c" .. (1 << 30), ""), string.pack("!16 i16", 1), ("x"):rep(10):unpack("s8")
