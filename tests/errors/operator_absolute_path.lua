operator{name = "twice", rule = "...->...", kernel = "/etc/twice.c"}
