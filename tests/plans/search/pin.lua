pin{q = 1}
local args = settings{{"tp", 1, "ranks", search = "tensor"}}
