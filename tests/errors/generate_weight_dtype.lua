local mesh = device_mesh{ {"tp", 1} }
return generate{
  model = nn.Embedding(32, 32), vocab = 32, context = 16, weight_dtype = "int4",
  forward = function(model, tokens) return model(tokens) end,
}
