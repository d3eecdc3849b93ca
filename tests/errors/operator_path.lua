operator{name = "twice", rule = "...->...", kernel = "../twice.c"}
