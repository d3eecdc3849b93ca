operator{name = "twice", rule = "...->...", kernel = "twice.c", backward = {"twice_back"}}
