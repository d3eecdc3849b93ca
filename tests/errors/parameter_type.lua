local m = nn.Parameter(ones{2, dtype = "bool"})
