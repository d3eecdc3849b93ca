local mesh = device_mesh{ {"dp", 2}, device = {memory_bandwidth = 1e12} }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} } }
