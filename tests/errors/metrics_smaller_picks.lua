return train{
  model = nn.Linear(4, 3),
  batch = {input = randn{6, 4}, labels = randint(3){6}},
  loss = function(output, batch) return F.cross_entropy(output, batch.labels) end,
  optimizer = SGD{}, drop_last = false,
  steps = 1,
  metrics = function(output)
    return {it = output:argmax(0):to("float32")}
  end,
}
