infer{model = nn.Linear(3, 4), batch = {input = randn{3}}, matmul_precision = "high"}
