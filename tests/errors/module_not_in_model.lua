local Model = nn.module("Model", function(self)
  local hidden = nn.Linear(10, 10)
  self.linear = nn.Linear(10, 5)
  function self:forward(x)
    return self.linear(hidden(x))
  end
end)
infer{model = Model(), batch = {input = randn{20, 10}}}
