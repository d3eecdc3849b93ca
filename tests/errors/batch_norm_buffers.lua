local M = nn.module("M", function(self)
  function self:forward(x)
    return F.batch_norm(x, F.zeros(6), F.ones(6), {training = true})
  end
end)
return infer{model = M(), batch = {input = randn{4, 6}}, outputs = function(m, b) return {y = m(b.input)} end}
