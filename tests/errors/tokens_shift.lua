local input = tokens(512, -1){4, 8}
