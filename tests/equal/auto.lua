-- auto(): over a mesh of one, two and three dimensions, of a small language model with grouped queries: placements
-- that tpgen finds, also beside styles that the plan states, compute what one rank does.
-- mesh: a=2
-- mesh: a=2 b=2
-- mesh: a=4 b=2
-- mesh: a=3 b=2
-- mesh: a=2 b=2 c=2
-- mesh: a=4 limit=30000
-- mesh: a=2 b=2 pinned=true
-- sanitized: a=2 b=2
local a, b, c = args.a or 1, args.b or 1, args.c or 1
local mesh = device_mesh{{"a", a}, {"b", b}, {"c", c}}
local dim, heads, groups, hidden, vocab, sequence = 24, 6, 3, 48, 48, 12
local batch_size = 4
local no = {bias = false}
local Attention = nn.module("Attention", function(self)
  local d = dim // heads
  self.wq, self.wk, self.wv, self.wo = nn.Linear(dim, dim), nn.Linear(dim, groups * d), nn.Linear(dim, groups * d), nn.Linear(dim, dim, no)
  local function split(x) return x:unflatten(-1, {x:size(-1) // d, d}):transpose(1, 2) end
  function self:forward(x)
    local y = F.scaled_dot_product_attention(split(self.wq(x)), split(self.wk(x)), split(self.wv(x)), {is_causal = true, enable_gqa = true})
    return self.wo(y:transpose(1, 2):flatten(2))
  end
end)
local Network = nn.module("Network", function(self)
  self.w1, self.w2, self.w3 = nn.Linear(dim, hidden, no), nn.Linear(hidden, dim), nn.Linear(dim, hidden, no)
  function self:forward(x) return self.w2(F.silu(self.w1(x)) * self.w3(x)) end
end)
local Layer = nn.module("Layer", function(self)
  self.attention_norm, self.network_norm = nn.RMSNorm(dim), nn.LayerNorm(dim)
  self.attention, self.network = Attention(), Network()
  function self:forward(x)
    x = x + self.attention(self.attention_norm(x))
    return x + self.network(self.network_norm(x))
  end
end)
local Model = nn.module("Model", function(self)
  self.embedding, self.norm, self.head = nn.Embedding(vocab, dim), nn.RMSNorm(dim), nn.Linear(dim, vocab, no)
  self.layers = nn.ModuleList{Layer(), Layer(), Layer()}
  function self:forward(ids)
    local x = self.embedding(ids)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.head(self.norm(x))
  end
end)
local batch = {input = randint(0, vocab){batch_size, sequence, dtype = "int64"}, target = randint(0, vocab){batch_size, sequence, dtype = "int64"}}
batch = distribute(batch, mesh.a, Shard(0))
local placements = auto{parameters = args.limit}
if args.pinned then placements = {["layers.*.attention.wq"] = Colwise(), ["layers.*.network.w2"] = Rowwise(), ["**"] = placements} end
local model = parallelize(Model(), mesh, placements)
return train{
  model = model, batch = batch,
  loss = function(y, k) return F.cross_entropy(y:flatten(0, 1), k.target:flatten()) end,
  optimizer = AdamW{lr = 0.01}, steps = 3,
}
