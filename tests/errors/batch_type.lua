infer{model = nn.Identity(), batch = {input = randn{2, dtype = "int32"}}}
