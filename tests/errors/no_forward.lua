local Model = nn.module("Model", function(self)
  self.linear = nn.Linear(10, 5)
end)
infer{model = Model(), batch = {input = randn{20, 10}}}
