-- Qwen 2.5, Qwen 3 and Mistral from a Hugging Face folder or from the start: Llama's layers, with biases at q,
-- k and v (Qwen 2.5), norms of each head of q and k (Qwen 3), or a window (Mistral). Tensor parallel within the
-- layers, sequence parallel between them, loss parallel at the end.
--
--   tpgen plans/qwen.lua -o out/ -D config=Qwen3-0.6B/config.json -D tp=2 -D seq=4096
--   out/run.sh --weights Qwen3-0.6B --data train.bin
--
-- tpgen plans/qwen.lua --help lists the settings.

local hugging_face, shared = require "lib.hugging_face", require "lib.settings"
local parallel, training, attention = require "lib.parallel", require "lib.training", require "lib.attention"

local function from_config(path)
  local config = hugging_face.config(path, {"qwen2", "qwen3", "mistral", "ministral"})
  local need, at = config.need, config.at
  config.only("hidden_act", "silu")
  hugging_face.usual_window(config)
  local theta, scaling = hugging_face.rope(at)
  local two, three = at.model_type == "qwen2", at.model_type == "qwen3"
  return {
    dim = need("hidden_size"), n_layers = need("num_hidden_layers"),
    n_heads = need("num_attention_heads"), n_kv_heads = at.num_key_value_heads,
    head_dim = at.head_dim or three and 128 or nil, hidden = need("intermediate_size"),
    vocab = need("vocab_size"), theta = theta, scaling = scaling, eps = at.rms_norm_eps or 1e-6,
    tied = at.tie_word_embeddings, head_norms = three,
    qkv_bias = two or at.attention_bias == true, output_bias = not two and at.attention_bias,
    seq = math.min(at.max_position_embeddings or 2048, 8192),
    pad = config.pad(need("vocab_size")), window = function(i) return attention.window(at, i) end,
  }
end

local known = args.config and from_config(args.config)
  or {dim = 64, n_layers = 2, n_heads = 4, n_kv_heads = 2, hidden = 176, vocab = 256, seq = 64,
    batch = 4, head_norms = true, qkv_bias = false}
local args = settings({shared.files,
  shared.model{
    "dim", "n_layers", "n_heads", "n_kv_heads", "head_dim", "hidden", "vocab", "seq", "theta", {"eps", 1e-6},
    "tied", "pad",
    {"head_norms", true, "q and k have a norm of each head (Qwen 3)"},
    {"qkv_bias", false, "q, k and v have a bias (Qwen 2.5)"},
  },
  shared.mesh, shared.async_tp, shared.training,
}, known)
local dim, n_layers, n_heads, n_kv_heads, head_dim = args.dim, args.n_layers, args.n_heads, args.n_kv_heads, args.head_dim
local hidden, vocab, seq, theta, eps, tied = args.hidden, args.vocab, args.seq, args.theta, args.eps, args.tied
local head_norms, qkv_bias = args.head_norms, args.qkv_bias
local p = parallel.open(args)
local queries, keys, times = attention.layouts(p, n_heads, n_kv_heads)

-- ------------------------------------------------------------------------------------- the model

local function linear(inputs, outputs, bias)
  return nn.Linear(inputs, outputs, {bias = bias or false, init = nn.init.normal(0, 0.02)})
end

local Attention = nn.module("Attention", function(self, window)
  self.q_proj = linear(dim, n_heads * head_dim, qkv_bias)
  self.k_proj = linear(dim, n_kv_heads * head_dim, qkv_bias)
  self.v_proj = linear(dim, n_kv_heads * head_dim, qkv_bias)
  self.o_proj = linear(n_heads * head_dim, dim, known.output_bias)
  self.q_norm = head_norms and nn.RMSNorm(head_dim, {eps = eps}) or nn.Identity()
  self.k_norm = head_norms and nn.RMSNorm(head_dim, {eps = eps}) or nn.Identity()
  function self:forward(x, cos, sin)
    local function heads(y) return attention.split(y, head_dim) end
    local q = self.q_norm(heads(self.q_proj(x))):rotary(cos, sin)
    local k = self.k_norm(heads(self.k_proj(x))):rotary(cos, sin)
    local v = attention.repeated(heads(self.v_proj(x)), times)
    k = attention.repeated(k, times)
    local y = F.scaled_dot_product_attention(q, k, v, {is_causal = true, enable_gqa = true, window = window})
    return self.o_proj(attention.join(y))
  end
end)

local MLP = nn.module("MLP", function(self)
  self.gate_proj, self.up_proj = linear(dim, hidden), linear(dim, hidden)
  self.down_proj = linear(hidden, dim)
  function self:forward(x) return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x)) end
end)

local Layer = nn.module("Layer", function(self, i)
  self.input_layernorm = nn.RMSNorm(dim, {eps = eps})
  self.post_attention_layernorm = nn.RMSNorm(dim, {eps = eps})
  self.self_attn, self.mlp = Attention(known.window and known.window(i)), MLP()
  function self:forward(x, cos, sin)
    x = x + self.self_attn(self.input_layernorm(x), cos, sin)
    return x + self.mlp(self.post_attention_layernorm(x))
  end
end)

local Qwen = nn.module("Qwen", function(self)
  self.embed_tokens = nn.Embedding(vocab, dim, {init = nn.init.normal(0, 0.02)})
  self.layers = attention.layers(n_layers, Layer, true)
  self.norm = nn.RMSNorm(dim, {eps = eps})
  self.lm_head = tied and attention.Tied() or linear(dim, vocab)
  function self:forward(ids)
    local cos, sin = F.rotary_tables(ids:positions(), head_dim, theta, hugging_face.scaling_of(known.scaling, seq))
    local x = attention.padded(self.embed_tokens(ids), ids, args.pad)
    for _, layer in ipairs(self.layers) do x = layer(x, cos, sin) end
    x = self.norm(x)
    if tied then return self.lm_head(x, self.embed_tokens.weight) end
    return self.lm_head(x)
  end
end)

-- -------------------------------------------------------------------------------------- the plan

local whole_input = PrepareModuleInput{
  desired_input_layouts = {Replicate(), false, false},
}
local model = parallelize(Qwen(), p.mesh.tp, {
  embed_tokens = Rowwise{output_layouts = Shard(1)},
  norm = SequenceParallel(),
  lm_head = attention.output(tied),
  ["layers.*"] = {
    input_layernorm = SequenceParallel(), post_attention_layernorm = SequenceParallel(),
    self_attn = whole_input, mlp = PrepareModuleInput{desired_input_layouts = Replicate()},
    ["self_attn.q_proj"] = Colwise{output_layouts = queries},
    ["self_attn.[kv]_proj"] = Colwise{output_layouts = keys},
    ["self_attn.o_proj"] = Rowwise{output_layouts = Shard(1)},
    ["mlp.gate_proj"] = Colwise(), ["mlp.up_proj"] = Colwise(),
    ["mlp.down_proj"] = Rowwise{output_layouts = Shard(1)},
  },
}, {async_tp = args.async_tp})
p.context(model)
p.shard(model, model.embed_tokens, model.layers, {model.norm, model.lm_head})

return train(training.next_token(args, p, model, vocab, seq,
  training.prefixed("model.", {"embed_tokens.weight", "layers.*.**", "norm.weight"})))
