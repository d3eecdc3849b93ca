local mesh = device_mesh{ {"dp", 2}, device = {flops = 1e12, memory = 1e9} }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} } }
