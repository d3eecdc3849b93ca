-- Two wide values: what is computed from the one is finished before the other is made, so that they
-- lie in the same place.
local Wide = nn.module("Wide", function(self)
  self.wide   = nn.Linear(4, 256, {bias=false})
  self.narrow = nn.Linear(256, 4, {bias=false})
  self.other  = nn.Linear(256, 4, {bias=false})
  function self:forward(x)
    local a, b = self.wide(x), self.wide(x + x)
    local c, d = self.narrow(a), self.other(b)
    return c * d
  end
end)
return infer{ model = Wide(), batch = { input = randn{8, 4} } }
