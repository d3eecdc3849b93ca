-- train's parallel, of a language model whose layers are in a list: every dimension of its mesh.
-- mesh: tp=2
-- mesh: cp=2
-- mesh: cp=2 context=allgather dp_shard=2
-- mesh: dp_shard=2 reshard_after_forward=never tp=2
-- mesh: pp=2 microbatches=2 tp=2
-- mesh: cp=2 balance=headtail dp_replicate=2
local dim, heads, vocab, sequence, samples = args.dim or 24, 4, 48, args.sequence or 12, args.samples or 4
local Attention = nn.module("Attention", function(self)
  self.q, self.k = nn.Linear(dim, dim), nn.Linear(dim, dim, {bias = false})
  self.v, self.out = nn.Linear(dim, dim), nn.Linear(dim, dim)
  local function split(x) return x:unflatten(-1, {heads, dim // heads}):transpose(1, 2) end
  function self:forward(x)
    local y = F.scaled_dot_product_attention(split(self.q(x)), split(self.k(x)), split(self.v(x)), {is_causal = true})
    return self.out(y:transpose(1, 2):flatten(2))
  end
end)
local Layer = nn.module("Layer", function(self)
  self.norm1, self.norm2, self.attention = nn.LayerNorm(dim), nn.LayerNorm(dim), Attention()
  self.network = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
  function self:forward(x)
    x = x + self.attention(self.norm1(x))
    return x + self.network(self.norm2(x))
  end
end)
local Model = nn.module("Model", function(self)
  self.words, self.places = nn.Embedding(vocab, dim), nn.Embedding(sequence, dim)
  self.layers = nn.ModuleList{}
  for i = 1, args.depth or 2 do self.layers[i] = Layer() end
  self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab)
  function self:forward(ids)
    local x = self.words(ids) + self.places(ids:positions())
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.head(self.norm(x))
  end
end)
return train{
  model = Model(),
  batch = {input = randint(0, vocab){samples, sequence, dtype = "int64"}, target = randint(0, vocab){samples, sequence, dtype = "int64"}},
  loss = function(y, b) return F.cross_entropy(y, b.target, {dim = -1}) end,
  optimizer = AdamW{lr = 0.01}, steps = 3,
  parallel = args.cluster and auto{cluster = args.cluster} or {styles = args.tp and {
    words = Rowwise(), head = Colwise{output_layouts = Replicate()},
    ["layers.*"] = {
      ["attention.q"] = Colwise(), ["attention.k"] = Colwise(), ["attention.v"] = Colwise(), ["attention.out"] = Rowwise(),
      ["network.0"] = Colwise(), ["network.2"] = Rowwise(),
    },
  }},
}
