local weight = nn.Parameter{8, 8, init = nn.init.normal(0, 1)}
nn.init.trunc_normal_(weight, {std = 0.02, a = 1, b = 2})
