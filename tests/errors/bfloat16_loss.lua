local Model = nn.module("Model", function(self)
  self.weight = nn.Parameter{10, init = nn.init.uniform(-1, 1)}
  function self:forward(x) return (self.weight * x):to("bfloat16") end
end)
train{model = Model(), batch = {input = randn{10}}, loss = function(output) return output:sum() end,
  optimizer = SGD{lr = 0.1}, steps = 1}
