local one = device_mesh{tp = 2}
local two = device_mesh{tp = 4}
