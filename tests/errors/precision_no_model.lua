mixed_precision({param_dtype = "bfloat16"})
