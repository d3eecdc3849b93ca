local p = nn.Parameter{10, 5}
