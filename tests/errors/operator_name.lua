operator{name = "Twice!", rule = "...->...", kernel = "twice.c"}
