local layer = nn.LazyLinear(4)
