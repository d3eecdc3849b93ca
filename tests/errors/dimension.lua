infer{
  model = nn.Identity(),
  batch = {input = randn{20, 10}},
  outputs = function(model, batch) return {output = batch.input:sum(2)} end,
}
