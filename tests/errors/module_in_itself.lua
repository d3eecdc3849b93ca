local Model = nn.module("Model", function(self)
  self.inner = self
end)
infer{model = Model(), batch = {input = randn{20, 10}}}
