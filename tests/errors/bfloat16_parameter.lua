nn.Parameter(randn{4, dtype = "bfloat16"})
