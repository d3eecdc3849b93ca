local Model = nn.module("Model", function(self)
  self.layer = nn.Linear(4, 4)
  function self:forward(x)
    return self.layer(x):to("float16")
  end
end)
infer{model = Model(), batch = {input = randn{2, 4}}}
