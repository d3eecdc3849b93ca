local args = settings{{"lr", 0.1, "the rate"}}
