local shared = nn.Linear(10, 10)
infer{model = nn.Sequential(shared, nn.ReLU(), shared), batch = {input = randn{20, 10}}}
