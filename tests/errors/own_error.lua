local function check(width)
  if width % 2 == 1 then error("the width must be even, not " .. width, 2) end
end
check(32)
check(33)
