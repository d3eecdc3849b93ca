local args = settings{{"tp", 1, "ranks", search = "tensor"}, {"columns", 1, "ranks", search = "tensor"}}
