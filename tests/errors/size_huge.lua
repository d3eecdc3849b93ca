local input = randn{1 << 30, 1 << 30}
