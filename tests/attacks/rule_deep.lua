-- A rule that is all parentheses and letters.
operator{name = "deep", kernel = "deep.c",
  rule = string.rep("(", 90) .. "a999999999999999999" .. string.rep(")", 90) .. "->a"}
