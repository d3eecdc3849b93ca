-- Computed in bfloat16, with float32 parameters, gradients and losses: an embedding cut by words, heads
-- and hidden units cut, norms on a cut sequence, the vocabulary cut into the loss; a tied weight, biases,
-- both norms, a floating input; gradients moved between ranks as float32 and as bfloat16.
-- rounds: bfloat16
-- mesh: tp=2
-- sanitized: tp=2
-- mesh: tp=3 reduced=bfloat16 checkpoint=layer
-- mesh: dp=2 tp=2 reduced=bfloat16
-- cuda: dp=2 tp=2 reduced=bfloat16
-- mesh: dp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local WIDTH, HEADS, SIZE, LENGTH, WORDS = 12, 6, 4, 5, 11

local Attention = nn.module("Attention", function(self)
  self.wq, self.wk = nn.Linear(WIDTH, HEADS * SIZE), nn.Linear(WIDTH, HEADS * SIZE, {bias = false})
  self.wv, self.wo = nn.Linear(WIDTH, HEADS * SIZE), nn.Linear(HEADS * SIZE, WIDTH, {bias = false})
  local function heads(x) return x:unflatten(-1, -1, SIZE):transpose(1, 2) end
  function self:forward(x, cos, sin)
    local q, k = heads(self.wq(x)):rotary(cos, sin), heads(self.wk(x)):rotary(cos, sin)
    local y = F.scaled_dot_product_attention(q, k, heads(self.wv(x)), {causal = true})
    return self.wo(y:transpose(1, 2):flatten(2))
  end
end)

local Block = nn.module("Block", function(self)
  self.attention_norm, self.ffn_norm = nn.RMSNorm(WIDTH), nn.LayerNorm(WIDTH)
  self.attention, self.up = Attention(), nn.Linear(WIDTH, 18)
  self.gate, self.down = nn.Linear(WIDTH, 18), nn.Linear(18, WIDTH)
  function self:forward(x, cos, sin)
    x = x + self.attention(self.attention_norm(x), cos, sin)
    local h = self.ffn_norm(x)
    return x + self.down(F.silu(self.gate(h)) * F.gelu(self.up(h)))
  end
end)

local Tied = nn.module("Tied", function(self)
  function self:forward(x, weight) return F.linear(x, weight) end
end)

local Model = nn.module("Model", function(self)
  self.embedding = nn.Embedding(WORDS, WIDTH)
  self.layers, self.norm = nn.ModuleList{Block(), Block()}, nn.RMSNorm(WIDTH)
  self.places, self.output = nn.Linear(3, WIDTH, {bias = false}), Tied()
  function self:forward(ids, places)
    local cos, sin = F.rotary_tables(LENGTH, SIZE, 100)
    local x = self.embedding(ids) + self.places(places)
    for _, layer in ipairs(self.layers) do x = layer(x, cos, sin) end
    return self.output(self.norm(x), self.embedding.weight)
  end
end)

local policy = {param_dtype = "bfloat16", reduce_dtype = args.reduced or "float32"}
local model = parallelize(mixed_precision(Model(), policy), mesh.tp, {
  embedding = Rowwise(),
  output = PrepareModuleOutput{desired_output_layouts = Shard(-1)},
  ["layers.*"] = {
    ["*_norm"] = SequenceParallel(),
    attention = PrepareModuleInput{desired_input_layouts = {Replicate(), false, false}},
    ["attention.w[qkv]"] = Colwise(),
    ["attention.wo"] = Rowwise{output_layouts = Shard(1)},
    ["up"] = Colwise(), ["gate"] = Colwise(),
    ["down"] = Rowwise{output_layouts = Shard(1)},
  },
})

return train{
  model = model,
  batch = distribute({ids = randint(WORDS){6, LENGTH}, target = randint(WORDS){6, LENGTH},
    places = randn{6, LENGTH, 3}}, mesh.dp, Shard(0)),
  forward = function(model, batch) return model(batch.ids, batch.places) end,
  loss = function(logits, batch) return F.cross_entropy(logits, batch.target) end,
  optimizer = SGD{lr = 0.1, momentum = 0.5},
  accumulate = 2, clip = 2, checkpoint = args.checkpoint, steps = 4, seed = 9,
}
