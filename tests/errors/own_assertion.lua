local width = 33
assert(width % 2 == 0, "the width must be even")
