-- Falcon from a Hugging Face folder or from the start. q, k and v are in one weight: all queries, then
-- the one key and value of multi-query attention (7B), cut part by part; or group by group (40B, 180B),
-- cut between groups. Attention and MLP in parallel. Tensor parallel within the layers, sequence
-- parallel between them.
--
--   tpgen plans/falcon.lua -o out/ -D config=falcon-7b/config.json -D tp=2 -D seq=2048
--   out/run.sh --weights falcon-7b --data train.bin
--
-- tpgen plans/falcon.lua --help lists the settings.

local hugging_face, shared = require "lib.hugging_face", require "lib.settings"
local parallel, training, attention = require "lib.parallel", require "lib.training", require "lib.attention"

local function from_config(path)
  local config = hugging_face.config(path, {"falcon"})
  local need, at = config.need, config.at
  local new = at.new_decoder_architecture == true
  config.only("alibi", false)
  config.only("bias", false)
  config.only("activation", "gelu")
  if not new then config.only("parallel_attn", true) end
  for _, drop in ipairs{"hidden_dropout", "attention_dropout"} do config.only(drop, 0) end
  local theta, scaling = hugging_face.rope(at)
  local heads = need("num_attention_heads")
  return {
    dim = need("hidden_size"), n_layers = need("num_hidden_layers"), n_heads = heads,
    multi_query = not new and at.multi_query ~= false, groups = new and at.num_kv_heads or heads,
    two_norms = new and at.num_ln_in_parallel_attn ~= 1, hidden = at.ffn_hidden_size,
    vocab = need("vocab_size"), theta = theta, scaling = scaling, eps = at.layer_norm_epsilon,
    tied = at.tie_word_embeddings, seq = at.max_position_embeddings,
  }
end

local known = args.config and from_config(args.config)
  or {dim = 64, n_layers = 2, n_heads = 4, vocab = 256, seq = 64, batch = 4}
local args = settings({shared.files,
  shared.model{
    "dim", "n_layers", "n_heads",
    {"hidden", function(a) return 4 * a.dim end, "the width of the feed-forward network; by default 4 dim", type = "size"},
    "vocab", "seq", "theta", "eps", {"tied", true},
    {"multi_query", true, "all queries share one key and value"},
    {"groups", function(a) return a.n_heads end, "without multi_query: groups of queries, each with a key and a value", type = "size"},
    {"two_norms", false, "attention and MLP have norms of their own"},
  },
  shared.mesh, shared.async_tp, shared.training,
}, known)
local dim, n_layers, n_heads, hidden, vocab, seq = args.dim, args.n_layers, args.n_heads, args.hidden, args.vocab, args.seq
local theta, eps, tied, head_dim = args.theta, args.eps, args.tied, dim // n_heads
local multi_query, two_norms, groups = args.multi_query, args.two_norms, args.multi_query and 1 or args.groups
local p = parallel.open(args)
local queries, keys, times = attention.layouts(p, n_heads, 1)
local parts = {dim, head_dim, head_dim}

-- ------------------------------------------------------------------------------------- the model

local function linear(inputs, outputs)
  return nn.Linear(inputs, outputs, {bias = false, init = nn.init.normal(0, 0.02)})
end

-- With one key and value: each part to where its heads are to lie.
local function unpart(x)
  local q, k, v = x:split(parts, -1)
  local function heads(y, layout)
    return attention.split(y:redistribute(p.mesh.tp, layout), head_dim)
  end
  local function shared(y) return attention.repeated(heads(y, keys), times) end
  return heads(q, queries), shared(k), shared(v)
end

local Attention = nn.module("Attention", function(self)
  self.query_key_value, self.dense = linear(dim, dim + 2 * groups * head_dim), linear(dim, dim)
  function self:forward(x, cos, sin)
    local y, q, k, v = self.query_key_value(x)
    if multi_query then q, k, v = unpart(y) else q, k, v = attention.ungroup(y, groups, head_dim) end
    q, k = q:rotary(cos, sin), k:rotary(cos, sin)
    y = F.scaled_dot_product_attention(q, k, v, {is_causal = true, enable_gqa = true})
    return self.dense(attention.join(y))
  end
end)

local MLP = nn.module("MLP", function(self)
  self.dense_h_to_4h, self.dense_4h_to_h = linear(dim, hidden), linear(hidden, dim)
  function self:forward(x) return self.dense_4h_to_h(F.gelu(self.dense_h_to_4h(x))) end
end)

local Layer = nn.module("Layer", function(self)
  local function norm() return nn.LayerNorm(dim, {eps = eps}) end
  if two_norms then self.ln_attn, self.ln_mlp = norm(), norm() else self.input_layernorm = norm() end
  self.self_attention, self.mlp = Attention(), MLP()
  function self:forward(x, cos, sin)
    local function gathered(y) return y:redistribute(p.mesh.tp, Replicate()) end
    local y = gathered((self.ln_attn or self.input_layernorm)(x))
    local z = two_norms and gathered(self.ln_mlp(x)) or y
    return x + (self.self_attention(y, cos, sin) + self.mlp(z))
  end
end)

local Falcon = nn.module("Falcon", function(self)
  self.word_embeddings = nn.Embedding(vocab, dim, {init = nn.init.normal(0, 0.02)})
  self.h = attention.layers(n_layers, Layer)
  self.ln_f = nn.LayerNorm(dim, {eps = eps})
  self.lm_head = tied and attention.Tied() or linear(dim, vocab)
  function self:forward(ids)
    local cos, sin = F.rotary_tables(ids:positions(), head_dim, theta, hugging_face.scaling_of(known.scaling, seq))
    local x = self.word_embeddings(ids)
    for _, layer in ipairs(self.h) do x = layer(x, cos, sin) end
    x = self.ln_f(x)
    if tied then return self.lm_head(x, self.word_embeddings.weight) end
    return self.lm_head(x)
  end
end)

-- -------------------------------------------------------------------------------------- the plan

local model = parallelize(Falcon(), p.mesh.tp, {
  word_embeddings = Rowwise{output_layouts = Shard(1)},
  ln_f = SequenceParallel(),
  lm_head = attention.output(tied),
  ["h.*"] = {
    [two_norms and "ln_attn|ln_mlp" or "input_layernorm"] = SequenceParallel(),
    ["self_attention.query_key_value"] = multi_query and Colwise{parts = parts}
      or Colwise{output_layouts = attention.grouped(p, groups)},
    ["mlp.dense_h_to_4h"] = Colwise(),
    ["self_attention.dense|mlp.dense_4h_to_h"] = Rowwise{output_layouts = Shard(1)},
  },
}, {async_tp = args.async_tp})
p.context(model)
p.shard(model, model.word_embeddings, model.h, {model.ln_f, model.lm_head})

return train(training.next_token(args, p, model, vocab, seq,
  training.prefixed("transformer.", {"word_embeddings.weight", "h.*.**", "ln_f.*"})))
