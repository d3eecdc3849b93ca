return select("#", table.unpack({}, 1, 100000000)), ("x"):rep(100000000):byte(1, -1)
