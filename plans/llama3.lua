-- Llama 3, trained under torchtitan's plan: tensor parallel within the layers, sequence parallel
-- between them, loss parallel at the end; data parallel for the batch.
--
--   tpgen plans/llama3.lua -o out/ -D preset=debug -D tp=2
--
-- Every size is a definition, -D NAME=VALUE, or comes from the preset.

-- ---------------------------------------------------------------------------------------- settings

-- Llama 3.1's own shapes, and one that trains on a laptop.
local LLAMA_3_1 = {rope_type = "llama3", factor = 8, low_freq_factor = 1, high_freq_factor = 4,
  original_max_position_embeddings = 8192}
local presets = {
  debug = {dim = 128, n_layers = 2, n_heads = 8, n_kv_heads = 4, hidden = 352, vocab = 512,
    theta = 10000, seq = 64, batch = 4},
  ["8b"] = {dim = 4096, n_layers = 32, n_heads = 32, n_kv_heads = 8, hidden = 14336,
    vocab = 128256, theta = 500000, scaling = LLAMA_3_1, seq = 8192, batch = 1},
  ["70b"] = {dim = 8192, n_layers = 80, n_heads = 64, n_kv_heads = 8, hidden = 28672,
    vocab = 128256, theta = 500000, scaling = LLAMA_3_1, seq = 8192, batch = 1},
  ["405b"] = {dim = 16384, n_layers = 126, n_heads = 128, n_kv_heads = 8, hidden = 53248,
    vocab = 128256, theta = 500000, scaling = LLAMA_3_1, seq = 8192, batch = 1},
}
local preset = presets[args.preset or "debug"]
  or error("there is no preset '" .. tostring(args.preset) .. "': 8b, 70b, 405b, debug")

-- What the command line says, else the preset, else the last resort.
local function setting(name, otherwise)
  local value = args[name]
  if value == nil then value = preset[name] end
  if value == nil then value = otherwise end
  return value
end

local dim, n_layers, hidden = setting("dim"), setting("n_layers"), setting("hidden")
local n_heads, n_kv_heads = setting("n_heads"), setting("n_kv_heads")
local head_dim = setting("head_dim", dim // n_heads)
local vocab, seq, batch_size = setting("vocab"), setting("seq"), setting("batch")
local theta, eps = setting("theta"), setting("eps", 1e-5)
local loss_parallel = setting("loss_parallel", true)

-- --------------------------------------------------------------------------------------- the model

local plain = {bias = false}

local Attention = nn.module("Attention", function(self)
  self.wq = nn.Linear(dim, n_heads * head_dim, plain)
  self.wk = nn.Linear(dim, n_kv_heads * head_dim, plain)
  self.wv = nn.Linear(dim, n_kv_heads * head_dim, plain)
  self.wo = nn.Linear(n_heads * head_dim, dim, plain)

  -- [batch, sequence, heads * head_dim] as [batch, heads, sequence, head_dim]
  local function heads(x) return x:unflatten(-1, -1, head_dim):transpose(1, 2) end

  function self:forward(x, cos, sin)
    local q, k, v = heads(self.wq(x)), heads(self.wk(x)), heads(self.wv(x))
    q, k = q:rotary(cos, sin), k:rotary(cos, sin)
    local y = F.scaled_dot_product_attention(q, k, v, {causal = true})
    return self.wo(y:transpose(1, 2):flatten(2))
  end
end)

local FeedForward = nn.module("FeedForward", function(self)
  self.w1 = nn.Linear(dim, hidden, plain)
  self.w2 = nn.Linear(hidden, dim, plain)
  self.w3 = nn.Linear(dim, hidden, plain)

  function self:forward(x)
    return self.w2(F.silu(self.w1(x)) * self.w3(x))
  end
end)

local Layer = nn.module("Layer", function(self)
  self.attention_norm = nn.RMSNorm(dim, {eps = eps})
  self.attention = Attention()
  self.ffn_norm = nn.RMSNorm(dim, {eps = eps})
  self.feed_forward = FeedForward()

  function self:forward(x, cos, sin)
    x = x + self.attention(self.attention_norm(x), cos, sin)
    return x + self.feed_forward(self.ffn_norm(x))
  end
end)

local Llama = nn.module("Llama", function(self)
  self.tok_embeddings = nn.Embedding(vocab, dim)
  local layers = {}
  for i = 1, n_layers do layers[i] = Layer() end
  self.layers = nn.ModuleList(layers)
  self.norm = nn.RMSNorm(dim, {eps = eps})
  self.output = nn.Linear(dim, vocab, plain)

  function self:forward(tokens)
    local cos, sin = F.rotary_tables(seq, head_dim, theta, preset.scaling)
    local x = self.tok_embeddings(tokens)
    for _, layer in ipairs(self.layers) do x = layer(x, cos, sin) end
    return self.output(self.norm(x))
  end
end)

-- ---------------------------------------------------------------------------------------- the plan

local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local model = parallelize(Llama(), mesh.tp, {
  tok_embeddings = Rowwise{input_layouts = Replicate(), output_layouts = Shard(1)},
  norm = SequenceParallel(),
  output = Colwise{
    input_layouts = Shard(1),
    output_layouts = loss_parallel and Shard(-1) or Replicate(),
  },
  ["layers.*"] = {
    attention_norm = SequenceParallel(),
    attention = PrepareModuleInput{
      input_layouts = {Shard(1), false, false},
      desired_input_layouts = {Replicate(), false, false},
    },
    ["attention.wq"] = Colwise(),
    ["attention.wk"] = Colwise(),
    ["attention.wv"] = Colwise(),
    ["attention.wo"] = Rowwise{output_layouts = Shard(1)},
    ffn_norm = SequenceParallel(),
    feed_forward = PrepareModuleInput{
      input_layouts = Shard(1),
      desired_input_layouts = Replicate(),
    },
    ["feed_forward.w1"] = Colwise(),
    ["feed_forward.w2"] = Rowwise{output_layouts = Shard(1)},
    ["feed_forward.w3"] = Colwise(),
  },
})

-- -------------------------------------------------------------------------------------- training

local batch = distribute({
  input = tokens(vocab){batch_size, seq},
  target = tokens(vocab, 1){batch_size, seq},
}, mesh.dp, Shard(0))

return train{
  model     = model,
  batch     = batch,
  loss      = function(logits, batch) return F.cross_entropy(logits, batch.target) end,
  optimizer = AdamW{
    lr = setting("lr", 3e-4),
    betas = {setting("beta1", 0.9), setting("beta2", 0.95)},
    weight_decay = setting("weight_decay", 0.1),
  },
  steps     = setting("steps", 20),
}
