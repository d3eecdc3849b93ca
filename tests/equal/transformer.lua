-- A transformer: embedding and head cut by the vocabulary, heads in groups that share keys, rotary
-- places, dropout, whose masks do not depend on the mesh.
-- mesh: tp=2
-- mesh: dp=2
-- mesh: dp=2 tp=2
-- sanitized: dp=2 tp=2
-- mesh: dp=3 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local plain = {bias = false}
local WIDTH, HEADS, GROUPS, SIZE, LENGTH, WORDS = 16, 4, 2, 4, 6, 11

local Attention = nn.module("Attention", function(self)
  self.wq = nn.Linear(WIDTH, HEADS * SIZE, plain)
  self.wk = nn.Linear(WIDTH, GROUPS * SIZE, plain)
  self.wv = nn.Linear(WIDTH, GROUPS * SIZE, plain)
  self.wo = nn.Linear(HEADS * SIZE, WIDTH, plain)
  local function heads(x, n) return x:unflatten(-1, n, SIZE):transpose(1, 2) end
  function self:forward(x)
    local cos, sin = F.rotary_tables(LENGTH, SIZE, 100)
    local q = heads(self.wq(x), HEADS):rotary(cos, sin)
    local k = heads(self.wk(x), GROUPS):rotary(cos, sin)
    local v = heads(self.wv(x), GROUPS)
    local y = F.scaled_dot_product_attention(q, k, v, {causal = true})
    return self.wo(y:transpose(1, 2):flatten(2))
  end
end)

local Block = nn.module("Block", function(self)
  self.norm, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
  self.attention = Attention()
  self.w1, self.w3 = nn.Linear(WIDTH, 12, plain), nn.Linear(WIDTH, 12, plain)
  self.w2 = nn.Linear(12, WIDTH, plain)
  self.drop = nn.Dropout(0.1)
  function self:forward(x)
    x = x + self.drop(self.attention(self.norm(x)))
    local h = self.norm2(x)
    return x + self.w2(F.silu(self.w1(h)) * self.w3(h))
  end
end)

local Model = nn.module("Model", function(self)
  self.embedding = nn.Embedding(WORDS, WIDTH)
  self.layers = nn.ModuleList{Block(), Block()}
  self.norm = nn.RMSNorm(WIDTH)
  self.output = nn.Linear(WIDTH, WORDS, plain)
  function self:forward(ids)
    local x = self.embedding(ids)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.output(self.norm(x))
  end
end)

local model = parallelize(Model(), mesh.tp, {
  embedding = Rowwise(),
  ["layers.*.attention"] = {wq = Colwise(), wk = Colwise(), wv = Colwise(), wo = Rowwise()},
  ["layers.*"] = {w1 = Colwise(), w3 = Colwise(), w2 = Rowwise()},
  output = Colwise(),
})
local batch = distribute({
  input = randint(WORDS){6, LENGTH}, target = randint(WORDS){6, LENGTH},
}, mesh.dp, Shard(0))

return train{
  model = model, batch = batch,
  loss = function(output, batch) return F.cross_entropy(output, batch.target) end,
  optimizer = AdamW{lr = 0.02, eps = 1e-3},
  steps = 5, seed = 3,
}
