local model = nn.Linear(10, 5, {bais = false})
