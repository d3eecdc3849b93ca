device_mesh{ {"dp", 2}, cluster = { device = "H100", memory = "80 gigabytes" } }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} } }
