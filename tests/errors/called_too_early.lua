local model = nn.Linear(10, 5)
print(model(3))
