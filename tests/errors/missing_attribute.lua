local Model = nn.module("Model", function(self)
  self.in_proj = nn.Linear(10, 10)
  function self:forward(x)
    return self.inproj(x)
  end
end)
infer{model = Model(), batch = {input = randn{20, 10}}}
