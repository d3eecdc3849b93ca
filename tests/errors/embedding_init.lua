local table = nn.Embedding(10, 4, {init = 0.02})
