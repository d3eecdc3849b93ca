-- A setting of the mesh that there is not, beside dimensions in their order.
local mesh = device_mesh{ {"dp", 2}, {"tp", 2}, devices = "H100" }
