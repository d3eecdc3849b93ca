device_mesh{ {"dp", 2}, cluster = { device = "H100", devices = 8 } }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} } }
