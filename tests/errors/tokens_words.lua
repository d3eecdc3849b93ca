local input = tokens(0){4, 8}
