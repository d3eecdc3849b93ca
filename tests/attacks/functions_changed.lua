-- What a plan does to F and to math is its own affair: nn goes on.
F.linear, F.embedding, F.layer_norm = nil, 3, function() error("ESCAPED") end
math.sqrt, table.concat, string.format = nil, nil, nil
return infer{
  model = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU()), batch = {input = randn{4, 4}},
}
