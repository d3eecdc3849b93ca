local layer = nn.Conv1d(4, 4, 3)
nn.init.sparse_(layer.weight, 0.1)
