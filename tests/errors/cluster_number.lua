device_mesh{ {"dp", 2}, cluster = 16 }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} } }
