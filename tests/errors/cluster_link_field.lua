device_mesh{ {"dp", 2}, cluster = { device = "H100", intra = { bandwidth = 450e9, cards = 8 } } }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} } }
