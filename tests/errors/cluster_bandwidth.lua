device_mesh{ {"dp", 2}, cluster = { device = "H100", inter = { bandwidth = 0 } } }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} } }
