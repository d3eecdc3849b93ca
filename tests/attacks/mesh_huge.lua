local mesh = device_mesh{ {"a", 1 << 31}, {"b", 1 << 31}, {"c", 1 << 31} }
error("no such mesh")
