-- GPT-NeoX and Pythia from a Hugging Face folder or from the start: q, k and v of each head side by side
-- in one weight, which is cut between heads; a part of each head is rotated; attention and MLP in
-- parallel. Tensor parallel within the layers, sequence parallel between them.
--
--   tpgen plans/gpt_neox.lua -o out/ -D config=pythia-1b/config.json -D tp=2 -D seq=2048
--   out/run.sh --weights pythia-1b --data train.bin
--
-- tpgen plans/gpt_neox.lua --help lists the settings.

local hugging_face, shared = require "lib.hugging_face", require "lib.settings"
local parallel, training, attention = require "lib.parallel", require "lib.training", require "lib.attention"

local function from_config(path)
  local config = hugging_face.config(path, {"gpt_neox"})
  local need, at = config.need, config.at
  config.only("hidden_act", "gelu")
  for _, drop in ipairs{"hidden_dropout", "attention_dropout"} do config.only(drop, 0) end
  local theta, scaling, part = hugging_face.rope(at)
  return {
    dim = need("hidden_size"), n_layers = need("num_hidden_layers"),
    n_heads = need("num_attention_heads"), hidden = need("intermediate_size"),
    vocab = need("vocab_size"), theta = theta or at.rotary_emb_base, scaling = scaling,
    rotated = part or at.rotary_pct or 0.25, eps = at.layer_norm_eps, bias = at.attention_bias,
    tied = at.tie_word_embeddings, together = at.use_parallel_residual,
    seq = at.max_position_embeddings,
  }
end

local known = args.config and from_config(args.config)
  or {dim = 64, n_layers = 2, n_heads = 4, hidden = 256, vocab = 256, seq = 64, batch = 4}
local args = settings({shared.files,
  shared.model{
    "dim", "n_layers", "n_heads", "hidden", "vocab", "seq", "theta",
    {"rotated", 0.25, "the part of a head that is rotated"},
    "eps", "tied",
    {"bias", true, "projections have a bias"},
    {"together", true, "attention and MLP read the same input"},
  },
  shared.mesh, shared.async_tp, shared.training,
}, known)
local dim, n_layers, n_heads, hidden, vocab, seq = args.dim, args.n_layers, args.n_heads, args.hidden, args.vocab, args.seq
local theta, eps, tied, head_dim, bias, together = args.theta, args.eps, args.tied, dim // n_heads, args.bias, args.together
local p = parallel.open(args)

-- ------------------------------------------------------------------------------------- the model

local function linear(inputs, outputs, options)
  return nn.Linear(inputs, outputs, {bias = options, init = nn.init.normal(0, 0.02)})
end

local Attention = nn.module("Attention", function(self)
  self.query_key_value, self.dense = linear(dim, 3 * dim, bias), linear(dim, dim, bias)
  function self:forward(x, cos, sin)
    local q, k, v = attention.ungroup(self.query_key_value(x), n_heads, head_dim)
    q, k = attention.rotate(q, cos, sin), attention.rotate(k, cos, sin)
    return self.dense(attention.join(F.scaled_dot_product_attention(q, k, v, {is_causal = true})))
  end
end)

local MLP = nn.module("MLP", function(self)
  self.dense_h_to_4h, self.dense_4h_to_h = linear(dim, hidden, true), linear(hidden, dim, true)
  function self:forward(x) return self.dense_4h_to_h(F.gelu(self.dense_h_to_4h(x))) end
end)

local Layer = nn.module("Layer", function(self)
  self.input_layernorm = nn.LayerNorm(dim, {eps = eps})
  self.post_attention_layernorm = nn.LayerNorm(dim, {eps = eps})
  self.attention, self.mlp = Attention(), MLP()
  function self:forward(x, cos, sin)
    local y = x + self.attention(self.input_layernorm(x), cos, sin)
    return y + self.mlp(self.post_attention_layernorm(together and x or y))
  end
end)

local NeoX = nn.module("NeoX", function(self)
  self.embed_in = nn.Embedding(vocab, dim, {init = nn.init.normal(0, 0.02)})
  self.layers = attention.layers(n_layers, Layer)
  self.final_layer_norm = nn.LayerNorm(dim, {eps = eps})
  self.embed_out = tied and attention.Tied() or linear(dim, vocab, false)
  function self:forward(ids)
    local rotated = math.floor(head_dim * args.rotated)
    local cos, sin = F.rotary_tables(ids:positions(), rotated, theta, hugging_face.scaling_of(known.scaling, seq))
    local x = self.embed_in(ids)
    for _, layer in ipairs(self.layers) do x = layer(x, cos, sin) end
    x = self.final_layer_norm(x)
    if tied then return self.embed_out(x, self.embed_in.weight) end
    return self.embed_out(x)
  end
end)

-- -------------------------------------------------------------------------------------- the plan

local model = parallelize(NeoX(), p.mesh.tp, {
  embed_in = Rowwise{output_layouts = Shard(1)},
  final_layer_norm = SequenceParallel(),
  embed_out = attention.output(tied),
  ["layers.*"] = {
    input_layernorm = SequenceParallel(), post_attention_layernorm = SequenceParallel(),
    ["attention.query_key_value"] = Colwise{output_layouts = attention.grouped(p, n_heads)},
    ["mlp.dense_h_to_4h"] = Colwise(),
    ["attention.dense|mlp.dense_4h_to_h"] = Rowwise{output_layouts = Shard(1)},
  },
}, {async_tp = args.async_tp})
p.context(model)
p.shard(model, model.embed_in, model.layers, {model.final_layer_norm, model.embed_out})

return train(training.next_token(args, p, model, vocab, seq,
  training.prefixed("gpt_neox.", {"embed_in.weight", "layers.*.**", "final_layer_norm.*"})))
