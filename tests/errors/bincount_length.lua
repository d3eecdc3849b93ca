local M = nn.module("M", function(self)
  function self:forward(x)
    return x:argmax(1):bincount()
  end
end)
return infer{model = M(), batch = {input = randn{4, 6}}, outputs = function(m, b) return {y = m(b.input)} end}
