-- Llama 3, trained under torchtitan's plan: tensor parallel within the layers, sequence parallel
-- between them, loss parallel at the end; data parallel for the batch, with the parameters, their
-- gradients and the optimizer's state cut over its ranks.
--
--   tpgen plans/llama3.lua -o out/ -D tp=2                       a small one, to try it
--   tpgen plans/llama3.lua -o out/ -D dp_shard=4                 fully sharded (FSDP) over 4 ranks
--   tpgen plans/llama3.lua -o out/ -D dp_replicate=2 -D tp=2     DDP: two copies of all there is
--   tpgen plans/llama3.lua -o out/ -D dp_replicate=2 -D dp_shard=4   hybrid (HSDP): two copies, each
--                                                                cut over 4 ranks
--   tpgen plans/llama3.lua -o out/ -D dp=8                       all of data parallel's ranks: cut over
--                                                                as many as dp_replicate leaves
--   tpgen plans/llama3.lua -o out/ -D dp=4 -D zero=2             ZeRO: parameters on all ranks while
--                                                                they compute
--   tpgen plans/llama3.lua -o out/ -D preset=405b -D dp=128 -D tp=8 -D device=H100 --ranks 0-7
--                                                                with the simulated step of such GPUs
--   tpgen plans/llama3.lua -o out/ -D tp=2 -D async_tp=true      what tp gathers and reduces travels in
--                                                                pieces, beside the products
--   tpgen plans/llama3.lua -o out/ -D preset=8b -D tp=8          Llama 3.1's: 8b, 70b, 405b
--   tpgen plans/llama3.lua -o out/ -D config=Llama-3.1-8B/config.json -D tp=8
--   out/run.sh --weights Llama-3.1-8B --data text.txt --steps 100
--
-- Whatever setting(), whole() and flag() read below can be said on the command line: -D seq=4096.

-- ---------------------------------------------------------------------------------------- settings

-- Llama 3.1's shapes, and one that trains on a laptop. hidden: of the feed-forward network.
local LLAMA_3_1 = {rope_type = "llama3", factor = 8, low_freq_factor = 1, high_freq_factor = 4,
  original_max_position_embeddings = 8192}
local presets = {
  debug = {dim = 128, n_layers = 2, n_heads = 8, n_kv_heads = 4, hidden = 352, vocab = 512,
    seq = 64, batch = 4},
  ["8b"] = {dim = 4096, n_layers = 32, n_heads = 32, n_kv_heads = 8, hidden = 14336,
    vocab = 128256, theta = 500000, scaling = LLAMA_3_1, seq = 8192},
  ["70b"] = {dim = 8192, n_layers = 80, n_heads = 64, n_kv_heads = 8, hidden = 28672,
    vocab = 128256, theta = 500000, scaling = LLAMA_3_1, seq = 8192},
  ["405b"] = {dim = 16384, n_layers = 126, n_heads = 128, n_kv_heads = 8, hidden = 53248,
    vocab = 128256, theta = 500000, scaling = LLAMA_3_1, seq = 8192},
}

-- The same from a Hugging Face model's config.json.
local function from_config(path)
  local config = read_json(path)
  local function need(key)
    return config[key] or error(path .. " has no '" .. key .. "'")
  end
  local function only(key, known)
    if (config[key] or known) ~= known then
      error(path .. ": " .. key .. " is " .. tostring(config[key]) .. "; this plan knows "
        .. tostring(known) .. " alone")
    end
  end
  only("model_type", "llama")
  only("hidden_act", "silu")
  only("attention_bias", false)
  only("mlp_bias", false)
  -- Newer files have the angle of the rotary embedding among its parameters.
  local rope, scaling = config.rope_parameters or config.rope_scaling or {}, {}
  for key, value in pairs(rope) do
    if key ~= "rope_theta" and key ~= "type" then scaling[key] = value end
  end
  scaling.rope_type = rope.rope_type or rope.type or "default"
  local positions = config.max_position_embeddings or 2048
  return {
    dim = need("hidden_size"), n_layers = need("num_hidden_layers"),
    n_heads = need("num_attention_heads"), n_kv_heads = config.num_key_value_heads,
    head_dim = config.head_dim, hidden = need("intermediate_size"), vocab = need("vocab_size"),
    theta = rope.rope_theta or config.rope_theta, scaling = scaling,
    eps = config.rms_norm_eps or 1e-6, tied = config.tie_word_embeddings,
    seq = math.min(positions, 8192),
  }
end

if args.config and args.preset then error("-D config and -D preset both say the model's shape") end
local known = args.config and from_config(args.config) or presets[args.preset or "debug"]
  or error("there is no preset '" .. tostring(args.preset) .. "': say 8b, 70b, 405b or debug")

-- What -D says, else the preset or the configuration, else this.
local function setting(name, otherwise)
  local value = args[name]
  if value == nil then value = known[name] end
  if value == nil then value = otherwise end
  return value
end

local function whole(name, otherwise)
  local value = setting(name, otherwise)
  if math.type(value) ~= "integer" or value < 1 then
    error(name .. " must be a whole number, 1 or more, not " .. tostring(value))
  end
  return value
end

local function flag(name, otherwise)
  local value = setting(name, otherwise)
  if type(value) ~= "boolean" then
    error(name .. " must be true or false, not " .. tostring(value))
  end
  return value
end

local dim, n_layers, n_heads = whole("dim"), whole("n_layers"), whole("n_heads")
local n_kv_heads = whole("n_kv_heads", n_heads)
local head_dim = whole("head_dim", math.tointeger(dim / n_heads) or dim / n_heads)
local hidden, vocab, seq = whole("hidden"), whole("vocab"), whole("seq")
local theta, eps, tied = setting("theta", 10000), setting("eps", 1e-5), flag("tied", false)
local tp, loss_parallel = whole("tp", 1), flag("loss_parallel", true)

-- The ranks that share the batch are dp_replicate * dp_shard.
local dp_replicate = whole("dp_replicate", 1)
local dp_shard = whole("dp_shard", args.dp and math.tointeger(whole("dp") / dp_replicate) or 1)
local dp = whole("dp", dp_replicate * dp_shard)
if dp % dp_replicate ~= 0 then
  error("dp = " .. dp .. " ranks do not divide into dp_replicate = " .. dp_replicate .. " copies")
elseif dp ~= dp_replicate * dp_shard then
  error("dp = " .. dp .. " ranks are not dp_replicate = " .. dp_replicate .. " times dp_shard = "
    .. dp_shard)
end
local batch_size = whole("batch", dp)

-- Whether what is gathered of the parameters is given up after the forward, and gathered again for
-- the backward: always, never, or by default in the layers, but not at the end of the model, whose
-- backward comes at once. A number: the layers keep parts, and gather among so many ranks.
local reshard = setting("reshard_after_forward", "default")
if math.type(reshard) ~= "integer" and reshard ~= "default" and reshard ~= "always"
    and reshard ~= "never" then
  error("reshard_after_forward must be default, always, never or a number of ranks, not "
    .. tostring(reshard))
end

-- Of ranks that share the batch without being fully sharded: 1 and 2 cut what the optimizer keeps over
-- them, 2 the gradients too (ZeRO).
local zero = setting("zero", 0)
if zero ~= 0 and reshard ~= "default" then
  error("reshard_after_forward is for what is fully sharded; with zero = " .. zero
    .. " parameters are whole while they compute")
end

-- float32, or tf32: float32 whose products may round what they take; or bfloat16: weights and what
-- the optimizer keeps of them are float32, and the model computes in bfloat16.
local dtype = setting("dtype", "float32")
if dtype ~= "float32" and dtype ~= "tf32" and dtype ~= "bfloat16" then
  error("dtype must be float32, tf32 or bfloat16, not " .. tostring(dtype))
end

-- What it runs on, where the simulated step is to be told for that: device=H100, say, in nodes of 8
-- with NVLink (450 GB/s), and 400 Gb/s of InfiniBand for each GPU between them.
local device = setting("device")
local function dimension(name, size, inside) -- inside: the ranks along the dimensions behind it
  if not device then return {name, size} end
  local in_node = size * inside <= 8
  return {name, size, bandwidth = in_node and 450e9 or 50e9, latency = in_node and 10e-6 or 30e-6}
end

local hybrid = dp_replicate > 1 and dp_shard > 1
local mesh = hybrid
  and device_mesh{
    dimension("dp_replicate", dp_replicate, dp_shard * tp), dimension("dp_shard", dp_shard, tp),
    dimension("tp", tp, 1), device = device,
  }
  or device_mesh{ dimension("dp", dp, tp), dimension("tp", tp, 1), device = device }
local data_parallel = hybrid and mesh{"dp_replicate", "dp_shard"} or mesh.dp

-- --------------------------------------------------------------------------------------- the model

-- A weight begins as torchtitan has it, but for the layers' depth: all layers begin alike.
local function linear(inputs, outputs, deviation)
  return nn.Linear(inputs, outputs, {bias = false, init = nn.init.normal(0, deviation)})
end
local INNER, LAST = 0.02, 0.02 / math.sqrt(2 * n_layers)

-- The ranks along tp share the heads among them, as many to each. Where there are fewer key-value
-- heads than ranks, several ranks have the same ones. Where heads do not divide, each rank has all
-- heads of some sequences; or, of fewer sequences than ranks, of some queries, against all keys.
local divides = n_heads % tp == 0 and n_kv_heads % tp == 0
local several = n_heads % tp == 0 and tp % n_kv_heads == 0 and n_kv_heads < tp
local queries, keys = Shard(-1), Shard(-1)
if several then
  keys = Replicate()
elseif not divides and batch_size // dp >= tp then
  queries, keys = Shard(0), Shard(0)
elseif not divides then
  queries, keys = Shard(1), Replicate()
end

local Attention = nn.module("Attention", function(self)
  self.wq = linear(dim, n_heads * head_dim, INNER)
  self.wk = linear(dim, n_kv_heads * head_dim, INNER)
  self.wv = linear(dim, n_kv_heads * head_dim, INNER)
  self.wo = linear(n_heads * head_dim, dim, LAST)

  -- [batch, sequence, heads * head_dim] as [batch, heads, sequence, head_dim]
  local function heads(x) return x:unflatten(-1, -1, head_dim):transpose(1, 2) end
  -- Each of these heads so often that all ranks have one.
  local function repeated(x)
    return x:unsqueeze(2):expand(-1, -1, tp // n_kv_heads, -1, -1):flatten(1, 2)
  end

  function self:forward(x, cos, sin)
    local q, k, v = heads(self.wq(x)), heads(self.wk(x)), heads(self.wv(x))
    q, k = q:rotary(cos, sin), k:rotary(cos, sin)
    if several then k, v = repeated(k), repeated(v) end
    local y = F.scaled_dot_product_attention(q, k, v, {causal = true})
    return self.wo(y:transpose(1, 2):flatten(2))
  end
end)

local FeedForward = nn.module("FeedForward", function(self)
  self.w1 = linear(dim, hidden, INNER)
  self.w2 = linear(hidden, dim, LAST)
  self.w3 = linear(dim, hidden, LAST)

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

-- The output of a model whose embedding is its last weight, too.
local Tied = nn.module("Tied", function(self)
  function self:forward(x, weight) return F.linear(x, weight) end
end)

local Llama = nn.module("Llama", function(self)
  self.tok_embeddings = nn.Embedding(vocab, dim, {init = nn.init.normal(0, tied and INNER or 1)})
  local layers = {}
  for i = 1, n_layers do layers[i] = Layer() end
  self.layers = nn.ModuleList(layers)
  self.norm = nn.RMSNorm(dim, {eps = eps})
  self.output = tied and Tied() or linear(dim, vocab, 1 / math.sqrt(dim))

  function self:forward(tokens)
    local cos, sin = F.rotary_tables(seq, head_dim, theta, known.scaling)
    local x = self.tok_embeddings(tokens)
    for _, layer in ipairs(self.layers) do x = layer(x, cos, sin) end
    x = self.norm(x)
    if tied then return self.output(x, self.tok_embeddings.weight) end
    return self.output(x)
  end
end)

-- ---------------------------------------------------------------------------------------- the plan

-- Under loss parallel the logits stay cut over the vocabulary, into the loss.
local logits = loss_parallel and Shard(-1) or Replicate()
local output = Colwise{
  input_layouts = Shard(1),
  output_layouts = logits,
  use_local_output = not loss_parallel,
}
if tied then
  output = PrepareModuleInputOutput{
    input_layouts = {Shard(1), false},
    desired_input_layouts = {Replicate(), false},
    desired_output_layouts = logits,
  }
end

local model = parallelize(Llama(), mesh.tp, {
  tok_embeddings = Rowwise{input_layouts = Replicate(), output_layouts = Shard(1)},
  norm = SequenceParallel(),
  output = output,
  ["layers.*"] = {
    attention_norm = SequenceParallel(),
    attention = PrepareModuleInput{
      input_layouts = {Shard(1), false, false},
      desired_input_layouts = {Replicate(), false, false},
    },
    ["attention.wq"] = Colwise{output_layouts = queries},
    ["attention.wk"] = Colwise{output_layouts = keys},
    ["attention.wv"] = Colwise{output_layouts = keys},
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
}, {async_tp = setting("async_tp")})

-- The units of parameters that are gathered, and whose gradients are reduced, together. A tied
-- embedding is used at both ends of the model.
if zero ~= 0 then
  replicate(model, data_parallel, {zero = zero})
elseif dp_shard > 1 then
  local at_once = {reshard_after_forward = reshard == "always"}
  local inside = {reshard_after_forward = math.tointeger(reshard) or reshard ~= "never"}
  fully_shard(model.tok_embeddings, data_parallel, inside)
  for _, layer in ipairs(model.layers) do fully_shard(layer, data_parallel, inside) end
  fully_shard({model.norm, model.output}, data_parallel, at_once)
  fully_shard(model, data_parallel, inside)
end

if dtype == "bfloat16" then
  mixed_precision(model, {param_dtype = "bfloat16", reduce_dtype = "float32"})
end

-- ------------------------------------------------------------------------------------ the training

local warmup, validate_every = setting("warmup"), setting("validate_every")

local batch = distribute({
  input = tokens(vocab){batch_size, seq},
  target = tokens(vocab, 1){batch_size, seq},
}, data_parallel, hybrid and {Shard(0), Shard(0)} or Shard(0))

return train{
  model      = model,
  batch      = batch,
  loss       = function(logits, batch) return F.cross_entropy(logits, batch.target) end,
  optimizer  = AdamW{
    lr = setting("lr", 3e-4),
    betas = {setting("beta1", 0.9), setting("beta2", 0.95)},
    weight_decay = setting("weight_decay", 0.1),
  },
  clip       = setting("clip"),
  schedule   = warmup and WarmupCosine{warmup = warmup, least = setting("least", 0)} or nil,
  accumulate = setting("accumulate"),
  reduce_each_batch = setting("reduce_each_batch"),
  checkpoint = setting("checkpoint"),
  bucketing  = setting("bucketing"),
  bucket_mb  = setting("bucket_mb"),
  prefetch   = setting("prefetch"),
  shuffle    = setting("shuffle"),
  validate   = validate_every and {every = validate_every},
  steps      = setting("steps", 20),
  seed       = setting("seed", 0),
  matmul_precision = dtype == "tf32" and "tf32" or nil,
  -- What a Hugging Face model's files call the weights.
  names      = {
    ["tok_embeddings.weight"] = "model.embed_tokens.weight",
    ["layers.*.attention_norm.weight"] = "model.layers.*.input_layernorm.weight",
    ["layers.*.attention.wq.weight"] = "model.layers.*.self_attn.q_proj.weight",
    ["layers.*.attention.wk.weight"] = "model.layers.*.self_attn.k_proj.weight",
    ["layers.*.attention.wv.weight"] = "model.layers.*.self_attn.v_proj.weight",
    ["layers.*.attention.wo.weight"] = "model.layers.*.self_attn.o_proj.weight",
    ["layers.*.ffn_norm.weight"] = "model.layers.*.post_attention_layernorm.weight",
    ["layers.*.feed_forward.w1.weight"] = "model.layers.*.mlp.gate_proj.weight",
    ["layers.*.feed_forward.w2.weight"] = "model.layers.*.mlp.down_proj.weight",
    ["layers.*.feed_forward.w3.weight"] = "model.layers.*.mlp.up_proj.weight",
    ["norm.weight"] = "model.norm.weight",
    ["output.weight"] = not tied and "lm_head.weight" or nil,
  },
}
