local M = nn.module("M", function(self)
  function self:forward(x)
    return F.interpolate(x, {scale_factor = 2, mode = "lanczos"})
  end
end)
return infer{model = M(), batch = {input = randn{4, 6, 6, 6}}, outputs = function(m, b) return {y = m(b.input)} end}
