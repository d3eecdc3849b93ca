local mesh = device_mesh{ {"dp", 2}, device = 3 }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} } }
