mixed_precision(nn.Linear(3, 4), {param_type = "bfloat16"})
