nn.Embedding("many", 3)
