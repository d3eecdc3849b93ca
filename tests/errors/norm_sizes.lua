nn.LayerNorm{}
