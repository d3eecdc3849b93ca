local M = nn.module("M", function(self)
  function self:forward(x)
    return F.cross_entropy(x, x:argmax(2), {dim = 1})
  end
end)
return infer{model = M(), batch = {input = randn{4, 6, 5}}, outputs = function(m, b) return {y = m(b.input)} end}
