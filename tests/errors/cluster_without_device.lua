device_mesh{ {"dp", 2}, cluster = { nodes = 2 } }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} } }
