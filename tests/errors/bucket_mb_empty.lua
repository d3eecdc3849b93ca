local mesh = device_mesh{ dp = 2 }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} }, bucket_mb = {} }
