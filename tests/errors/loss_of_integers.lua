local Model = nn.module("Model", function(self)
  self.weight = nn.Parameter(randn{2})
  function self:forward(x) return self.weight:gt(x):sum() end
end)
train{
  model = Model(), batch = {input = randn{2}}, loss = function(output) return output end,
  optimizer = SGD{}, steps = 1,
}
