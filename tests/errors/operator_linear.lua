operator{name = "twice", rule = "a->a", linear = "b", kernel = "twice.c"}
