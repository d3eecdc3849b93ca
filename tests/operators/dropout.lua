-- Dropout: which elements are left out depends on the seed, the step, the call and the element's place
-- in the whole tensor alone, and the gradient leaves out the same; so it is with weights of attention. Three equal layers draw numbers of
-- their own each. In inference nothing is left out.
local S = {6, 4, 10}
input("x", S)
input("y", S)

local Layer = nn.module("Layer", function(self)
  self.dropout = nn.Dropout(0.25)
  function self:forward(x) return self.dropout(x * 1.5) + x end
end)
local layers = part("layers", nn.ModuleList{Layer(), Layer(), Layer()})

case("dropout", S, function(t) return F.dropout(t.x, 0.3) end)
case("again", S, function(t) return F.dropout(t.x, 0.3) end)
case("of_function", {6, 40}, function(t) return (t.y * 2):flatten(1):dropout() end)
case("of_sum", {6, 10}, function(t) return t.y:sum(1):dropout(0.9) end)
case("turned", {10, 6, 4}, function(t) return t.y:permute(2, 0, 1):dropout(0.1) end)
case("layers", S, function(t)
  local x = t.x
  for _, layer in ipairs(layers) do x = layer(x) end
  return x
end)
-- Weights of attention: of grouped heads, without a mask; and of one head, causal.
case("attention", {6, 2, 4, 5}, function(t)
  local q, k = t.x:view(6, 4, 2, 5):transpose(1, 2), t.y:narrow(2, 0, 5):unsqueeze(1)
  return F.scaled_dot_product_attention(q, k, k * 2, {dropout_p = 0.3, enable_gqa = true})
end)
case("causal_attention", {6, 1, 4, 10}, function(t)
  local x, y = t.x:unsqueeze(1), t.y:unsqueeze(1)
  return F.scaled_dot_product_attention(x, y, y, {dropout_p = 0.5, is_causal = true})
end)
-- Of whole channels, and what keeps SELU's mean and deviation.
local volumes, alpha = part("volumes", nn.Dropout3d(0.3)), part("alpha", nn.AlphaDropout())
case("dropout1d", S, function(t) return F.dropout1d(t.x, 0.4) end)
case("dropout2d", {6, 4, 5, 2}, function(t) return F.dropout2d(t.y:view(6, 4, 5, 2)) end)
case("module_dropout3d", {6, 4, 5, 2, 1}, function(t) return volumes(t.x:view(6, 4, 5, 2, 1)) end)
case("alpha", S, function(t) return F.alpha_dropout(t.x, 0.2, true) end)
case("module_alpha", S, function(t) return alpha(t.y) end)
case("feature_alpha", {6, 4, 5, 2}, function(t) return F.feature_alpha_dropout(t.x:view(6, 4, 5, 2), 0.4, true) end)
case("alpha_always", S, function(t) return F.alpha_dropout(t.x, 1, true) end)
case("never", S, function(t) return t.x:dropout(0) + t.y:dropout(0.5, false) end)
case("always", S, function(t) return t.x:dropout(1) end)

return program()
