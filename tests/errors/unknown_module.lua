local model = nn.Linaer(10, 5)
