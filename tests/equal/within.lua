-- What is computed again so that a rank's program fits in its memory: some layers whole, others in part or not at all.
-- Meshes with a limit are compared with one rank that has none. On GPUs 1 GiB of it is an allowance for libraries.
-- mesh: within=900KB
-- mesh: within=340KB dp=2 tp=2
-- mesh: within=195KB dp=2 tp=2 sharded=1 microbatches=2
-- mesh: within=310KB pp=2 microbatches=4
-- mesh: within=380KB pp=2 microbatches=4 stages=6 schedule=interleaved_1f1b
-- mesh: within=545KB pp=2 tp=2 microbatches=4 schedule=zbv_zero_bubble
-- mesh: within=560KB tp=2 async=true
-- mesh: within=720KB
-- mesh: within=1077.10MB dp=2 tp=2 sharded=1 microbatches=2
-- mesh: within=1077.5MB tp=2 async=true
-- cuda: within=1077.10MB dp=2 tp=2 sharded=1 microbatches=2
-- cuda: within=1077.5MB tp=2 async=true
local mesh = device_mesh{ {"pp", args.pp or 1}, {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local plain = {bias = false}
local WIDTH, GROUPS, SIZE, LENGTH, WORDS, HIDDEN = 16, 2, 4, 16, 10, 40

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
  self.w1, self.w2 = nn.Linear(WIDTH, HIDDEN, plain), nn.Linear(HIDDEN, WIDTH, plain)
  self.w3, self.drop = nn.Linear(WIDTH, HIDDEN, plain), nn.Dropout(0.1)
  function self:forward(x) return self.drop(self.w2(F.silu(self.w1(x)) * self.w3(x))) end
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
  self.layers = nn.ModuleList{Block(), Block(), Block(), Block(), Block(), Block()}
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
      input_layouts = {Shard(1), false, false}, desired_input_layouts = {Replicate(), false, false},
    },
    ["attention.w[qkv]"] = Colwise(), ["attention.wo"] = Rowwise{output_layouts = Shard(1)},
    feed_forward = PrepareModuleInput{input_layouts = Shard(1), desired_input_layouts = Replicate()},
    ["feed_forward.w[13]"] = Colwise(), ["feed_forward.w2"] = Rowwise{output_layouts = Shard(1)},
  },
}, {async_tp = args.async})
if args.sharded then
  for _, layer in ipairs(model.layers) do fully_shard(layer, mesh.dp) end
  fully_shard(model, mesh.dp)
end
if args.pp then pipeline(model, mesh.pp, {microbatches = args.microbatches, schedule = args.schedule, stages = args.stages}) end
local batch = distribute({input = randint(WORDS){12, LENGTH}, target = randint(WORDS){12, LENGTH}}, mesh.dp, Shard(0))

return train{
  model = model, batch = batch,
  loss = function(output, batch) return F.cross_entropy(output, batch.target, {dim = -1}) end,
  optimizer = AdamW{lr = 0.02, eps = 1e-3}, steps = 3, seed = 11,
  microbatches = not args.pp and args.microbatches or nil,
  checkpoint = args.within and {memory = args.within} or nil,
}
