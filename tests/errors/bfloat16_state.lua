-- A state that begins as float32 meets weights of bfloat16.
local M = nn.module("M", function(self)
  self.linear = nn.Linear(8, 8)
  function self:forward(x)
    local state = F.zeros(4, 8)
    for _ = 1, 3 do state = F.tanh(self.linear(state) + x) end
    return state
  end
end)
infer{model = mixed_precision(M(), {param_dtype = "bfloat16"}), batch = {input = randn{4, 8}}}
