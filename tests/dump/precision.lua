-- args: -D tp=2
-- Mixed precision: weights are used as casts, the gradients of weights come out float32; a norm and a
-- loss read bfloat16 and compute in float32; rows of a table are cast as they are read.
local mesh = device_mesh{ {"tp", args.tp} }
local Model = nn.module("Model", function(self)
  self.embedding, self.norm, self.output = nn.Embedding(6, 4), nn.RMSNorm(4), nn.Linear(4, 6)
  function self:forward(ids, x) return self.output(self.norm(self.embedding(ids) + x)) end
end)
local model = mixed_precision(Model(), {param_dtype = "bfloat16"})
return train{
  model = parallelize(model, mesh.tp, {embedding = Rowwise(), output = Colwise()}),
  batch = {ids = randint(6){3}, x = randn{3, 4}, target = randint(6){3}},
  forward = function(model, batch) return model(batch.ids, batch.x) end,
  loss = function(logits, batch) return F.cross_entropy(logits, batch.target) end,
  optimizer = SGD{lr = 0.1}, steps = 1, matmul_precision = "tf32",
}
