operator{name = "relu", rule = "...->...", kernel = "twice.c"}
