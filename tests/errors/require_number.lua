require(12)
