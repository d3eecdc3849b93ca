require("required\27fails")
