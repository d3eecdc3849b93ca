local Model = nn.module("Model", function(self)
  self.layer = nn.Linear(4, 4)
  function self:forward(x)
    x = self.layer(x)
    x:add_(1)
    return x
  end
end)
infer{model = Model(), batch = {input = randn{2, 4}}}
