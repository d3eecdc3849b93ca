-- Long ways inside the library, where no instruction is counted.
table.move({}, 1, 1 << 53, 2)
