local model = paralellize(nn.Linear(10, 5))
