local Model = nn.module("Model", function(self)
  self.weight = nn.Parameter{8192, 8192, init = nn.init.orthogonal()}
  function self:forward(x) return x:matmul(self.weight) end
end)
infer{model = Model(), batch = {input = randn{4, 8192}}}
