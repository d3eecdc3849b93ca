local args = settings{{"mode", "a", "a text", search = true}}
