-- args: --dump=absorb
local Attention = nn.module("Attention", function(self)
  self.down, self.q, self.kv = nn.Linear(8, 5, {bias = false}), nn.Linear(8, 10, {bias = false}), nn.Linear(3, 14, {bias = false})
  function self:forward(x) -- 2 heads of 3 and 2 features, values of 4
    local latent, shared = self.down(x):split({3, 2}, -1)
    local kv = self.kv(latent):view(1, 6, 2, 7):transpose(1, 2)
    local k = F.cat({kv:narrow(3, 0, 3), shared:unsqueeze(1):expand{1, 2, 6, 2}}, 3)
    local q = self.q(x):view(1, 6, 2, 5):transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, kv:narrow(3, 3, 4), {is_causal = true}):transpose(1, 2):reshape(1, 6, 8)
  end
end)
local Model = nn.module("Model", function(self)
  self.words, self.attention, self.output = nn.Embedding(12, 8), Attention(), nn.Linear(8, 12)
  function self:forward(tokens) return self.output(self.attention(self.words(tokens))) end
end)
return generate{model = Model(), vocab = 12, context = 6, prefill = 4, caches = "small"}
