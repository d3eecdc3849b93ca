infer{
  model = nn.Identity(),
  batch = {input = randn{20, 1}},
  outputs = function(model, batch) return {output = batch.input:var(1)} end,
}
