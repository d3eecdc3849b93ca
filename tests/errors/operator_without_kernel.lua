operator{name = "twice", rule = "...->..."}
