local mesh = device_mesh{ {"dp", 2}, {"tp", 2} }
local part = mesh{}
