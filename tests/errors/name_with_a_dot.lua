local Model = nn.module("Model", function(self)
  self["in.proj"] = nn.Linear(10, 10)
end)
infer{model = Model(), batch = {input = randn{20, 10}}}
