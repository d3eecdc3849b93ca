local Model = nn.module("Model", function(self)
  self.moe, self.head = nn.MoE(4, {experts = 4, top_k = 2, hidden = 4}), nn.Linear(4, 3)
  function self:forward(x)
    local y, load = self.moe(x)
    return {logits = self.head(y), load = load}
  end
end)
return train{
  model = Model(),
  batch = {input = randn{6, 2, 4}, labels = randint(3){6, 2}},
  loss = function(output, batch) return F.cross_entropy(output.logits, batch.labels, {dim = -1}) end,
  optimizer = SGD{}, drop_last = false,
  steps = 1,
  metrics = function(output) return {load = output.load[1]} end,
}
