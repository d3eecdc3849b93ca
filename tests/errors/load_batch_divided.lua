-- Loads of each two samples, of which a micro-batch has three.
device_mesh{{"dp", 1}}
local M = nn.module("M", function(self)
  self.moe = nn.MoE(4, {experts = 2, top_k = 1, hidden = 4, load_batch = 2})
  function self:forward(x)
    local y, load = self.moe(x)
    return load
  end
end)
return train{
  model = M(), batch = {input = randn{6, 2, 4}}, steps = 1, microbatches = 2,
  loss = function(out) return F.load_balancing_loss(out[1], out[2]) end, optimizer = SGD{},
}
