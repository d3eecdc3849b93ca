local Model = nn.module("Model", function(self)
  self.weight = nn.Parameter{10, init = nn.init.uniform(-1, 1)}
  function self:forward(x) return mixed_precision(self, {param_dtype = "bfloat16"})(x) end
end)
infer{model = Model(), batch = {input = randn{10}}}
