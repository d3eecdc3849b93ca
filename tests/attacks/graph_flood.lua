-- The memory is tpgen's here, not Lua's.
local M = nn.module("M", function(self)
  function self:forward(x)
    while true do x = x + x end
  end
end)
return train{
  model = M(), batch = { input = randn{2, 2}, target = randn{2, 2} },
  loss = function(output, batch) return (output - batch.target):var() end,
  optimizer = AdamW{ lr = 0.05 }, steps = 1, seed = 1,
}
