local mesh = device_mesh{ {"dp", 2}, {"tp", 2, bandwidth = 0} }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} } }
