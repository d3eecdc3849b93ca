local model = parallelize(nn.Linear(6, 6), device_mesh{ {"tp", 1} }.tp, Colwise(), {}, "async")
