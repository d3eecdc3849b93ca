-- 2^64 elements, and 2^62 that are 2^64 bytes.
local M = nn.module("M", function(self)
  self.a = nn.Linear(1 << 31, 1 << 31)
  self.b = nn.Linear(4294967296, 4294967296)
  function self:forward(x) return self.b(self.a(x)) end
end)
return train {
  model = M(), batch = { input = randn{1 << 31, 1 << 31}, target = randn{1 << 62, 4, 4} },
  loss = function(output, batch) return (output - batch.target):var() end,
  optimizer = AdamW{ lr = 0.05 }, steps = 1, seed = 1,
}
