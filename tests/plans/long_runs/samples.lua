-- Learns from samples in float32, of which one may be NaN.
local Model = nn.module("Model", function(self)
  self.up = nn.Linear(4, 8)
  self.down = nn.Linear(8, 1)
  function self:forward(x) return self.down(self.up(x):relu()) end
end)

return train{
  model = Model(),
  batch = {input = randn{4, 4}, target = randn{4, 1}},
  loss = function(output, batch) return F.mse_loss(output, batch.target) end,
  optimizer = AdamW{lr = 1e-2}, drop_last = true, steps = 12,
}
