-- A kernel's file elsewhere on the machine would stand in the output.
local name = "kernels/./..//../../../../../etc/passwd.c"
for i = 1, 10 do name = "a/../" .. name end
local o = operator{name = "passwd", rule = "...->...", kernel = name}
