mixed_precision(nn.Linear(3, 4), "bfloat16")
