local mesh = device_mesh{ {"dp", 2, bandwidth = "fast"}, {"tp", 2} }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} } }
