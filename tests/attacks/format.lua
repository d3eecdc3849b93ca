return string.format("%99.99f%s", 1e308, ("x"):rep(1 << 30)), string.format(("%s"):rep(1 << 24), "x")
