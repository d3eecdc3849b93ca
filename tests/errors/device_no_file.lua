-- The file of a device is missing.
local mesh = device_mesh{ {"dp", 2}, device = "no_such_device.json" }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} } }
