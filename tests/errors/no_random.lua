local width = math.random(1, 32)
