-- Gemma and Gemma 2 from a Hugging Face folder or from the start: norms that multiply by 1 + weight, a scaled
-- embedding; Gemma 2 also has norms behind attention and MLP, softcaps, and windows of every second layer. Tensor
-- parallel within the layers, sequence parallel between them, loss parallel at the end.
--
--   tpgen plans/gemma.lua -o out/ -D config=gemma-2-2b/config.json -D tp=2 -D seq=4096
--   out/run.sh --weights gemma-2-2b --data train.bin
--
-- tpgen plans/gemma.lua --help lists the settings.

local hugging_face, shared = require "lib.hugging_face", require "lib.settings"
local parallel, training, attention = require "lib.parallel", require "lib.training", require "lib.attention"

local function from_config(path)
  local config = hugging_face.config(path, {"gemma", "gemma2"})
  local need, at = config.need, config.at
  config.only("attention_bias", false)
  config.only(at.hidden_activation and "hidden_activation" or "hidden_act", "gelu_pytorch_tanh")
  hugging_face.usual_window(config)
  local theta, scaling = hugging_face.rope(at)
  local two = at.model_type == "gemma2"
  return {
    dim = need("hidden_size"), n_layers = need("num_hidden_layers"),
    n_heads = need("num_attention_heads"), n_kv_heads = at.num_key_value_heads,
    head_dim = at.head_dim or 256, hidden = need("intermediate_size"), vocab = need("vocab_size"),
    theta = theta, scaling = scaling, eps = at.rms_norm_eps or 1e-6,
    tied = at.tie_word_embeddings ~= false, norms_behind = two,
    queries_by = two and (at.query_pre_attn_scalar or 256) or nil,
    softcap = two and at.attn_logit_softcapping or nil,
    last_softcap = two and at.final_logit_softcapping or nil,
    seq = math.min(at.max_position_embeddings or 2048, 8192),
    pad = config.pad(need("vocab_size"), 0), window = function(i) return attention.window(at, i) end,
  }
end

local known = args.config and from_config(args.config)
  or {dim = 64, n_layers = 2, n_heads = 4, n_kv_heads = 2, head_dim = 16, hidden = 176, vocab = 256,
    seq = 64, batch = 4, norms_behind = true, softcap = 50, last_softcap = 30}
local args = settings({shared.files,
  shared.model{
    "dim", "n_layers", "n_heads", "n_kv_heads", "head_dim", "hidden", "vocab", "seq", "theta", {"eps", 1e-6},
    {"tied", true}, "pad",
    {"norms_behind", true, "norms behind attention and MLP, too (Gemma 2)"},
    {"queries_by", function(a) return a.head_dim end, "scores are divided by its root; by default head_dim", type = "number"},
  },
  shared.mesh, shared.async_tp, shared.training,
}, known)
local dim, n_layers, n_heads, n_kv_heads, head_dim = args.dim, args.n_layers, args.n_heads, args.n_kv_heads, args.head_dim
local hidden, vocab, seq, theta, eps, tied = args.hidden, args.vocab, args.seq, args.theta, args.eps, args.tied
local norms_behind, scale = args.norms_behind, args.queries_by ^ -0.5
local p = parallel.open(args)
local queries, keys, times = attention.layouts(p, n_heads, n_kv_heads)

-- ------------------------------------------------------------------------------------- the model

local function linear(inputs, outputs)
  return nn.Linear(inputs, outputs, {bias = false, init = nn.init.normal(0, 0.02)})
end

local function capped(x, cap)
  if not cap then return x end
  return (x / cap):tanh() * cap
end

local Norm = nn.module("Norm", function(self)
  self.weight = nn.Parameter(zeros{dim})
  function self:forward(x) return F.rms_norm(x, {dim}, 1 + self.weight, eps) end
end)

local Attention = nn.module("Attention", function(self, window)
  self.q_proj, self.k_proj = linear(dim, n_heads * head_dim), linear(dim, n_kv_heads * head_dim)
  self.v_proj, self.o_proj = linear(dim, n_kv_heads * head_dim), linear(n_heads * head_dim, dim)
  function self:forward(x, cos, sin)
    local function heads(y) return attention.split(y, head_dim) end
    local q, k = heads(self.q_proj(x)):rotary(cos, sin), heads(self.k_proj(x)):rotary(cos, sin)
    k = attention.repeated(k, times)
    local v = attention.repeated(heads(self.v_proj(x)), times)
    local y = F.scaled_dot_product_attention(q, k, v, {is_causal = true, enable_gqa = true,
      scale = scale, window = window, softcap = known.softcap})
    return self.o_proj(attention.join(y))
  end
end)

local MLP = nn.module("MLP", function(self)
  self.gate_proj, self.up_proj = linear(dim, hidden), linear(dim, hidden)
  self.down_proj = linear(hidden, dim)
  function self:forward(x)
    return self.down_proj(F.gelu(self.gate_proj(x), "tanh") * self.up_proj(x))
  end
end)

local Layer = nn.module("Layer", function(self, i)
  self.input_layernorm, self.post_attention_layernorm = Norm(), Norm()
  if norms_behind then
    self.pre_feedforward_layernorm, self.post_feedforward_layernorm = Norm(), Norm()
  end
  self.self_attn, self.mlp = Attention(known.window and known.window(i)), MLP()
  function self:forward(x, cos, sin)
    local y = self.self_attn(self.input_layernorm(x), cos, sin)
    if not norms_behind then
      x = x + y
      return x + self.mlp(self.post_attention_layernorm(x))
    end
    x = x + self.post_attention_layernorm(y)
    return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))
  end
end)

local Gemma = nn.module("Gemma", function(self)
  self.embed_tokens = nn.Embedding(vocab, dim, {init = nn.init.normal(0, 0.02)})
  self.layers = attention.layers(n_layers, Layer, true)
  self.norm = Norm()
  self.lm_head = tied and attention.Tied() or linear(dim, vocab)
  function self:forward(ids)
    local cos, sin = F.rotary_tables(ids:positions(), head_dim, theta, hugging_face.scaling_of(known.scaling, seq))
    local x = attention.padded(self.embed_tokens(ids), ids, args.pad) * dim ^ 0.5
    for _, layer in ipairs(self.layers) do x = layer(x, cos, sin) end
    x = self.norm(x)
    return capped(self.lm_head(x, tied and self.embed_tokens.weight or nil), known.last_softcap)
  end
end)

-- -------------------------------------------------------------------------------------- the plan

local model = parallelize(Gemma(), p.mesh.tp, {
  embed_tokens = Rowwise{output_layouts = Shard(1)},
  norm = SequenceParallel(),
  lm_head = attention.output(tied),
  ["layers.*"] = {
    ["*_layernorm"] = SequenceParallel(),
    self_attn = PrepareModuleInput{desired_input_layouts = {Replicate(), false, false}},
    mlp = PrepareModuleInput{desired_input_layouts = Replicate()},
    ["self_attn.q_proj"] = Colwise{output_layouts = queries},
    ["self_attn.[kv]_proj"] = Colwise{output_layouts = keys},
    ["self_attn.o_proj"] = Rowwise{output_layouts = Shard(1)},
    ["mlp.gate_proj|mlp.up_proj"] = Colwise(),
    ["mlp.down_proj"] = Rowwise{output_layouts = Shard(1)},
  },
}, {async_tp = args.async_tp})
p.context(model)
p.shard(model, model.embed_tokens, model.layers, {model.norm, model.lm_head})

return train(training.next_token(args, p, model, vocab, seq,
  training.prefixed("model.", {"embed_tokens.weight", "layers.*.**", "norm.weight"})))
