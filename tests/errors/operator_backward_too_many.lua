local a = operator{name = "a", rule = "...->...", kernel = "twice.c"}
operator{name = "twice", rule = "...->...", kernel = "twice.c", backward = {a, a}}
