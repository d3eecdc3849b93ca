local Model = nn.module("Model", function(self)
  self.layer = nn.Linear(4, 4)
  function self:forward(x)
    return torch.cat{x, x}
  end
end)
infer{model = Model(), batch = {input = randn{2, 4}}}
