local args = settings{{"tp", 1, "ranks", search = "columns"}}
