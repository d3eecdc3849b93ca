local M = nn.module("M", function(self)
  self.linear, self.norm = nn.Linear(4, 6), nn.BatchNorm1d(6)
  function self:forward(x) return self.norm(self.linear(x)) end
end)
return train{
  model = M(), batch = {input = randn{8, 4}, target = randn{8, 6}}, optimizer = SGD{lr = 0.1}, steps = 1, accumulate = 2,
  loss = function(y, batch) return F.mse_loss(y, batch.target) end,
}
