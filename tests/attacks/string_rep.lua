return ("x"):rep(1 << 40)
