return train{
  model = nn.Linear(4, 4),
  batch = {input = randint(5){4, 4}},
  forward = function(model, batch) return model(batch.input:to("float32")) end,
  loss = function(output) return output:mean() end,
  optimizer = SGD{},
  steps = 1,
  microbatches = 2,
  metrics = function(output, batch) return {most = batch.input:sum(0):amax()} end,
}
