-- Prints the names of the functions, methods and modules that plans have.
for name in pairs(F) do print("F." .. name) end
for name in pairs(F) do print("x:" .. name) end
for name in pairs(nn) do print("nn." .. name) end
