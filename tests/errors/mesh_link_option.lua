local mesh = device_mesh{ dp = {2, bandwith = 25e9} }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} } }
