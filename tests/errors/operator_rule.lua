operator{name = "twice", rule = "ab-ab", kernel = "twice.c"}
