local Model = nn.module("Model", function(self)
  self.layer = nn.Linear(4, 4)
  function self:forward(x)
    for p in self.layer:parameters() do x = x + p end
    return x
  end
end)
infer{model = Model(), batch = {input = randn{2, 4}}}
