local layer = nn.Conv1d(4, 6, 3)
nn.init.dirac_(layer.weight, {groups = 4})
