-- The values of a forward, kept and used where they do not belong, and their metamethods by hand.
local kept
local M = nn.module("M", function(self)
  self.a = nn.Linear(2, 2)
  function self:forward(x)
    kept = x
    local m = getmetatable(x)
    if type(m) == "table" then
      for name, f in pairs(m) do if type(f) == "function" then f({}, x, name) end end
      m.__index = m
    end
    return self.a(x)
  end
end)
train{
  model = M(), batch = { input = randn{2, 2}, target = randn{2, 2} },
  loss = function(output, batch) return (output - kept):var() end,
  optimizer = AdamW{ lr = 0.05 }, steps = 1, seed = 1,
}
return kept + kept, kept:var(), M()(kept)
