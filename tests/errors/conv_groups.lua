nn.Conv2d(3, 4, 3, {groups = 2})
