-- A small Llama under the plan of PyTorch's tutorial: between the blocks the sequence is cut, within
-- them heads and hidden units; the logits stay cut over the vocabulary, into the loss.
-- mesh: tp=2
-- mesh: tp=3 checkpoint=layer
-- mesh: dp=2 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local plain = {bias = false}
local WIDTH, GROUPS, SIZE, LENGTH, WORDS = 12, 3, 4, 7, 10

local Attention = nn.module("Attention", function(self)
  self.wq = nn.Linear(WIDTH, 2 * GROUPS * SIZE, plain)
  self.wk, self.wv = nn.Linear(WIDTH, GROUPS * SIZE, plain), nn.Linear(WIDTH, GROUPS * SIZE, plain)
  self.wo = nn.Linear(2 * GROUPS * SIZE, WIDTH, plain)
  local function heads(x) return x:unflatten(-1, -1, SIZE):transpose(1, 2) end
  function self:forward(x, cos, sin)
    local turn = {pairs = true}
    local q, k = heads(self.wq(x)):rotary(cos, sin, turn), heads(self.wk(x)):rotary(cos, sin, turn)
    local y = F.scaled_dot_product_attention(q, k, heads(self.wv(x)), {causal = true})
    return self.wo(y:transpose(1, 2):flatten(2))
  end
end)

local FeedForward = nn.module("FeedForward", function(self)
  self.w1, self.w2 = nn.Linear(WIDTH, 14, plain), nn.Linear(14, WIDTH, plain)
  self.w3 = nn.Linear(WIDTH, 14, plain)
  function self:forward(x) return self.w2(F.silu(self.w1(x)) * self.w3(x)) end
end)

local Block = nn.module("Block", function(self)
  self.attention_norm, self.ffn_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
  self.attention, self.feed_forward = Attention(), FeedForward()
  function self:forward(x, cos, sin)
    local h = x + self.attention(self.attention_norm(x), cos, sin)
    return h + self.feed_forward(self.ffn_norm(h))
  end
end)

local Llama = nn.module("Llama", function(self)
  self.tok_embeddings = nn.Embedding(WORDS, WIDTH)
  self.layers = nn.ModuleList{Block(), Block(), Block()}
  self.norm, self.output = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, plain)
  function self:forward(ids)
    local x = self.tok_embeddings(ids)
    local cos, sin = F.rotary_tables(LENGTH, SIZE, 100)
    for _, layer in ipairs(self.layers) do x = layer(x, cos, sin) end
    return self.output(self.norm(x))
  end
end)

local model = parallelize(Llama(), mesh.tp, {
  tok_embeddings = Rowwise{output_layouts = Shard(1)},
  norm = SequenceParallel(),
  output = Colwise{input_layouts = Shard(1)},
  ["layers.*"] = {
    ["*_norm"] = SequenceParallel(),
    attention = PrepareModuleInput{
      input_layouts = {Shard(1), false, false},
      desired_input_layouts = {Replicate(), false, false},
    },
    ["attention.w[qkv]"] = Colwise(),
    ["attention.wo"] = Rowwise{output_layouts = Shard(1)},
    feed_forward = PrepareModuleInput{
      input_layouts = Shard(1), desired_input_layouts = Replicate(),
    },
    ["feed_forward.w[13]"] = Colwise(),
    ["feed_forward.w2"] = Rowwise{output_layouts = Shard(1)},
  },
})
local batch = distribute({
  input = randint(WORDS){4, LENGTH}, target = randint(WORDS){4, LENGTH},
}, mesh.dp, Shard(0))

return train{
  model = model, batch = batch,
  loss = function(output, batch) return F.cross_entropy(output, batch.target) end,
  optimizer = AdamW{lr = 0.02, eps = 1e-3},
  steps = 4, seed = 19, checkpoint = args.checkpoint,
}
