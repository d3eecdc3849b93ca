-- A tokenizer that does not fit the model.
local Model = nn.module("Model", function(self)
  self.embedding, self.output = nn.Embedding(50, 8), nn.Linear(8, 60)
  function self:forward(ids) return self.output(self.embedding(ids)) end
end)
train{
  model = Model(),
  batch = {input = tokens(60){4, 8}, target = tokens(60, 1){4, 8}},
  loss = function(output, batch) return F.cross_entropy(output, batch.target) end,
  optimizer = SGD(), steps = 1,
}
