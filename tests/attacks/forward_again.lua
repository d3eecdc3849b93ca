-- A forward that is its own part.
local M = nn.module("M", function(self)
  self.a = nn.Linear(2, 2)
  function self:forward(x) return self(self.a(x)) end
end)
return train{
  model = M(), batch = { input = randn{2, 2}, target = randn{2, 2} },
  loss = function(output, batch) return (output - batch.target):var() end,
  optimizer = AdamW{ lr = 0.05 }, steps = 1, seed = 1,
}
