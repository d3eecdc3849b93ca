local model = nn.Linear(10, "wide")
