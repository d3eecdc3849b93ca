-- The activation of experts that is no function.
local Model = nn.module("Model", function(self)
  self.moe = nn.MoE(8, {experts = 4, top_k = 2, hidden = 16, act = "swiglu"})
  function self:forward(x) return (self.moe(x)) end
end)
return infer{model = Model(), batch = {input = randn{2, 4, 8}}}
