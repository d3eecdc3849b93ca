local mesh = device_mesh{ dp = 2 }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} }, bucketing = "none", bucket_mb = 25 }
