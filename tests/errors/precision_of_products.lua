-- What the model makes itself is float32, and its weights are bfloat16.
local Model = nn.module("Model", function(self)
  self.linear = nn.Linear(3, 4)
  function self:forward(x) return self.linear(F.ones(5, 3)) end
end)
infer{model = mixed_precision(Model(), {param_dtype = "bfloat16"}), batch = {input = randn{10}}}
