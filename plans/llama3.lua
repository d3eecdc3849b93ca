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
--   tpgen plans/llama3.lua -o out/ -D cp=4 -D context=ring -D balance=headtail   sequences cut over 4 ranks;
--                                                                also context=allgather, ulysses; ulysses=2: a ring of pairs that exchange heads
--   tpgen plans/llama3.lua -o out/ -D documents=2                token 2 ends a document: no token sees
--                                                                another document; longest=4096: none has more tokens
--   tpgen plans/llama3.lua -o out/ -D preset=8b -D tp=8          Llama 3.1's: 8b, 70b, 405b
--   tpgen plans/llama3.lua -o out/ -D config=Llama-3.1-8B/config.json -D tp=8
--   out/run.sh --weights Llama-3.1-8B --data text.txt --steps 100
--
-- tpgen plans/llama3.lua --help lists the settings.

local families, hugging_face, shared = require "lib.families", require "lib.hugging_face", require "lib.settings"
local parallel, training, attention = require "lib.parallel", require "lib.training", require "lib.attention"

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
  local c = families.read(path, {"llama"}, {{"hidden_act", "silu"}, {"attention_bias", false}, {"mlp_bias", false},
    {"attention_dropout", 0}})
  c.theta, c.scaling, c.seq = c.rotary.theta, c.rotary.scaling, math.min(c.positions, 8192)
  return c
end

if args.config and args.preset then error("-D config and -D preset both say the model's shape") end
local known = args.config and from_config(args.config) or presets[args.preset or "debug"]
  or error("there is no preset '" .. tostring(args.preset) .. "': say 8b, 70b, 405b or debug")

local args = settings({
  {title = shared.files.title,
    {"preset", nil, "a shape of Llama 3.1's, in the place of a config; by default debug, a small one",
      choices = {"debug", "8b", "70b", "405b"}},
  },
  shared.files,
  shared.model{
    "dim", "n_layers", "n_heads", "n_kv_heads",
    {"head_dim", function(a) return math.tointeger(a.dim / a.n_heads) or a.dim / a.n_heads end,
      "the width of a head; by default dim / n_heads", type = "size"},
    "hidden", "vocab", "seq", "theta", "eps", "tied", "pad",
    {"loss_parallel", true, "the logits stay cut over the vocabulary, into the loss",
      search = {false, with = "tp"}},
  },
  shared.documents, shared.adapters("wq|wv"),
  shared.mesh, shared.async_tp, shared.text, shared.training,
}, known)
local dim, n_layers, n_heads, n_kv_heads, head_dim = args.dim, args.n_layers, args.n_heads, args.n_kv_heads, args.head_dim
local hidden, vocab, seq, theta, eps, tied = args.hidden, args.vocab, args.seq, args.theta, args.eps, args.tied
local loss_parallel = args.loss_parallel
local eos = args.documents     -- the token that ends a document; nil: the text is one
local has_documents = eos ~= nil or args.packed
local longest = args.longest   -- the tokens of the longest document, if known

local p = parallel.open(args)
local mesh, tp, dp, batch_size = p.mesh, p.tp, p.dp, p.batch

-- --------------------------------------------------------------------------------------- the model

-- A weight begins as torchtitan has it, but for the layers' depth: all layers begin the same way.
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

  function self:forward(x, cos, sin, documents)
    local q, k, v = heads(self.wq(x)), heads(self.wk(x)), heads(self.wv(x))
    q, k = q:rotary(cos, sin), k:rotary(cos, sin)
    if several then k, v = repeated(k), repeated(v) end
    local y = F.scaled_dot_product_attention(q, k, v, {causal = true, documents = documents})
    return self.wo(y:transpose(1, 2):flatten(2))
  end
end)

local FeedForward = nn.module("FeedForward", function(self)
  self.w1 = linear(dim, hidden, INNER)
  self.w3 = linear(dim, hidden, LAST)
  self.w2 = linear(hidden, dim, LAST)

  function self:forward(x)
    return self.w2(F.silu(self.w1(x)) * self.w3(x))
  end
end)

local Layer = nn.module("Layer", function(self)
  self.attention_norm = nn.RMSNorm(dim, {eps = eps})
  self.attention = Attention()
  self.ffn_norm = nn.RMSNorm(dim, {eps = eps})
  self.feed_forward = FeedForward()

  function self:forward(x, cos, sin, documents)
    x = x + self.attention(self.attention_norm(x), cos, sin, documents)
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
    local x, cos, sin, documents, places = attention.padded(self.tok_embeddings(tokens), tokens, args.pad)
    if has_documents then
      documents, places = tokens:documents()
      cos, sin = attention.tables_of_documents(places, seq, head_dim, theta, known.scaling)
    else
      cos, sin = F.rotary_tables(tokens:positions(), head_dim, theta, hugging_face.scaling_of(known.scaling, seq))
    end
    for _, layer in ipairs(self.layers) do x = layer(x, cos, sin, documents) end
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
      input_layouts = {Shard(1), false, false, has_documents and false or nil},
      desired_input_layouts = {Replicate(), false, false, has_documents and false or nil},
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
}, {async_tp = args.async_tp})

training.adapt(args, model, "CAUSAL_LM")

p.pipeline(model)
p.context(model)

-- A tied embedding is used at both ends of the model.
p.shard(model, model.tok_embeddings, model.layers, {model.norm, model.output})

-- ------------------------------------------------------------------------------------ the training

return train(training.options(args, p, {
  model = model,
  batch = training.next_token_batch(args, p, vocab, seq, {documents = eos, longest = longest}, args.packed),
  loss = training.next_token_loss,
  -- What a Hugging Face model's files call the weights.
  names = {
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
}))
