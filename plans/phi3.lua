-- Phi-3 from a Hugging Face folder or from the start: Llama's layers, with q, k, v and gate, up side by
-- side in one weight each. Tensor parallel within the layers, sequence parallel between them, loss
-- parallel at the end.
--
--   tpgen plans/phi3.lua -o out/ -D config=Phi-3-mini-4k-instruct/config.json -D tp=2 -D seq=4096
--   out/run.sh --weights Phi-3-mini-4k-instruct --data train.bin
--
-- tpgen plans/phi3.lua --help lists the settings.

local hugging_face, shared = require "lib.hugging_face", require "lib.settings"
local parallel, training, attention = require "lib.parallel", require "lib.training", require "lib.attention"

local function from_config(path)
  local config = hugging_face.config(path, {"phi3"})
  local need, at = config.need, config.at
  config.only("hidden_act", "silu")
  for _, drop in ipairs{"resid_pdrop", "embd_pdrop", "attention_dropout"} do config.only(drop, 0) end
  local theta, scaling, part = hugging_face.rope(at)
  return {
    dim = need("hidden_size"), n_layers = need("num_hidden_layers"),
    n_heads = need("num_attention_heads"), n_kv_heads = at.num_key_value_heads,
    hidden = need("intermediate_size"), vocab = need("vocab_size"), theta = theta, scaling = scaling,
    rotated = part, window = at.sliding_window, eps = at.rms_norm_eps, tied = at.tie_word_embeddings,
    seq = math.min(at.max_position_embeddings or 4096, 4096), pad = config.pad(need("vocab_size"), 32000),
  }
end

local known = args.config and from_config(args.config)
  or {dim = 64, n_layers = 2, n_heads = 4, n_kv_heads = 2, hidden = 176, vocab = 256, seq = 64, batch = 4}
local args = settings({shared.files,
  shared.model{
    "dim", "n_layers", "n_heads", "n_kv_heads", "hidden", "vocab", "seq", "theta", "eps", "tied", "pad",
    "window",
  },
  shared.mesh, shared.async_tp, shared.training,
}, known)
local dim, n_layers, n_heads, n_kv_heads, hidden = args.dim, args.n_layers, args.n_heads, args.n_kv_heads, args.hidden
local vocab, seq, theta, eps, tied, head_dim = args.vocab, args.seq, args.theta, args.eps, args.tied, dim // n_heads
local window = args.window and args.window < seq and args.window or nil
local p = parallel.open(args)
local queries, keys, times = attention.layouts(p, n_heads, n_kv_heads)
local parts = {n_heads * head_dim, n_kv_heads * head_dim, n_kv_heads * head_dim}

-- ------------------------------------------------------------------------------------- the model

local function linear(inputs, outputs)
  return nn.Linear(inputs, outputs, {bias = false, init = nn.init.normal(0, 0.02)})
end

local Attention = nn.module("Attention", function(self)
  self.qkv_proj = linear(dim, parts[1] + parts[2] + parts[3])
  self.o_proj = linear(n_heads * head_dim, dim)
  function self:forward(x, cos, sin)
    local q, k, v = self.qkv_proj(x):split(parts, -1)
    local function heads(y, layout)
      return attention.split(y:redistribute(p.mesh.tp, layout), head_dim)
    end
    q = attention.rotate(heads(q, queries), cos, sin)
    k = attention.repeated(attention.rotate(heads(k, keys), cos, sin), times)
    v = attention.repeated(heads(v, keys), times)
    local y = F.scaled_dot_product_attention(q, k, v,
      {is_causal = true, enable_gqa = true, window = window})
    return self.o_proj(attention.join(y))
  end
end)

local MLP = nn.module("MLP", function(self)
  self.gate_up_proj, self.down_proj = linear(dim, 2 * hidden), linear(hidden, dim)
  function self:forward(x)
    local gate, up = self.gate_up_proj(x):chunk(2, -1)
    return self.down_proj(F.silu(gate) * up)
  end
end)

local Layer = nn.module("Layer", function(self)
  self.input_layernorm = nn.RMSNorm(dim, {eps = eps})
  self.post_attention_layernorm = nn.RMSNorm(dim, {eps = eps})
  self.self_attn, self.mlp = Attention(), MLP()
  function self:forward(x, cos, sin)
    x = x + self.self_attn(self.input_layernorm(x), cos, sin)
    return x + self.mlp(self.post_attention_layernorm(x))
  end
end)

local Phi3 = nn.module("Phi3", function(self)
  self.embed_tokens = nn.Embedding(vocab, dim, {init = nn.init.normal(0, 0.02)})
  self.layers = attention.layers(n_layers, Layer)
  self.norm = nn.RMSNorm(dim, {eps = eps})
  self.lm_head = tied and attention.Tied() or linear(dim, vocab)
  function self:forward(ids)
    local rotated = math.floor(head_dim * (known.rotated or 1))
    local cos, sin = F.rotary_tables(ids:positions(), rotated, theta, hugging_face.scaling_of(known.scaling, seq))
    local x = attention.padded(self.embed_tokens(ids), ids, args.pad)
    for _, layer in ipairs(self.layers) do x = layer(x, cos, sin) end
    x = self.norm(x)
    if tied then return self.lm_head(x, self.embed_tokens.weight) end
    return self.lm_head(x)
  end
end)

-- -------------------------------------------------------------------------------------- the plan

local model = parallelize(Phi3(), p.mesh.tp, {
  embed_tokens = Rowwise{output_layouts = Shard(1)},
  norm = SequenceParallel(),
  lm_head = attention.output(tied),
  ["layers.*"] = {
    input_layernorm = SequenceParallel(), post_attention_layernorm = SequenceParallel(),
    self_attn = PrepareModuleInput{desired_input_layouts = {Replicate(), false, false}},
    mlp = PrepareModuleInput{desired_input_layouts = Replicate()},
    ["self_attn.qkv_proj"] = Colwise{parts = parts},
    ["mlp.gate_up_proj"] = Colwise{parts = 2},
    ["self_attn.o_proj|mlp.down_proj"] = Rowwise{output_layouts = Shard(1)},
  },
}, {async_tp = args.async_tp})
p.context(model)
p.shard(model, model.embed_tokens, model.layers, {model.norm, model.lm_head})

return train(training.next_token(args, p, model, vocab, seq,
  training.prefixed("model.", {"embed_tokens.weight", "layers.*.**", "norm.weight"})))
