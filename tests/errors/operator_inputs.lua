local twice = operator{name = "twice", rule = "...->...", kernel = "twice.c"}
infer{
  model = nn.Identity(), batch = {input = randn{2}},
  outputs = function(_, batch) return {output = twice(batch.input, batch.input)} end,
}
