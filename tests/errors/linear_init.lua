local model = nn.Linear(10, 4, {init = randn{4, 10}})
