-- Learns from samples in float32, of which one may be NaN.
local args = settings{
  {"skips", false, "whether the program can skip steps, whose updates do not depend on their numbers"},
}
local Model = nn.module("Model", function(self)
  self.up = nn.Linear(4, 8)
  self.down = nn.Linear(8, 1)
  function self:forward(x) return self.down(self.up(x):relu()) end
end)

return train{
  model = Model(),
  batch = {input = randn{4, 4}, target = randn{4, 1}},
  loss = function(output, batch) return F.mse_loss(output, batch.target) end,
  optimizer = args.skips and SGD{lr = 1e-2, momentum = 0.9} or AdamW{lr = 1e-2}, clip = args.skips and 10 or nil,
  drop_last = true, steps = 12,
}
