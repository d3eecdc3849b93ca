mixed_precision(nn.Linear(3, 4), {param_dtype = "bfloat16", reduce_dtype = "float16"})
