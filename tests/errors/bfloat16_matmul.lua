local Model = nn.module("Model", function(self)
  self.weight = nn.Parameter{10, 5, init = nn.init.uniform(-1, 1)}
  function self:forward(x) return F.matmul(x, self.weight:to("bfloat16")) end
end)
infer{model = Model(), batch = {input = randn{20, 10}}}
