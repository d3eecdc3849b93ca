local model = nn.Linear(3, 4)
mixed_precision(model, {param_dtype = "bfloat16"})
mixed_precision(model, {param_dtype = "float32"})
