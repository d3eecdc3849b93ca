mixed_precision(nn.Linear(4, 4), {param_dtype = "bfloat16"})
infer{model = nn.Linear(3, 4), batch = {input = randn{3}}}
