local mesh = device_mesh{ dp = {2, latency = 0 / 0} }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} } }
