local M = nn.module("M", function(self)
  self.linear = nn.Linear(8, 8)
  function self:forward(x)
    local y = F.zeros(4, 8)
    return y:scatter(1, F.zeros{4, 1, dtype = "int32"}, self.linear(x):narrow(1, 0, 1))
  end
end)
infer{model = mixed_precision(M(), {param_dtype = "bfloat16"}), batch = {input = randn{4, 8}}}
