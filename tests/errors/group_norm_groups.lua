local M = nn.module("M", function(self)
  function self:forward(x)
    return F.group_norm(x, 4)
  end
end)
return infer{model = M(), batch = {input = randn{4, 6}}, outputs = function(m, b) return {y = m(b.input)} end}
