local M = nn.module("M", function(self)
  function self:forward(x)
    return F.scan(function(h, x) return h end, F.zeros(4), {a = x, b = x:narrow(1, 0, 3)}, 1)
  end
end)
return infer{model = M(), batch = {input = randn{4, 6}}, outputs = function(m, b) return {y = m(b.input)} end}
