local input = randn{20, 0}
