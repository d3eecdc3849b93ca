-- Mixtral, Qwen3-MoE and OLMoE from a Hugging Face folder or from the start: mixtures of experts. Experts are cut
-- over ep, which borrows ranks of data parallel: tokens travel to the ranks with their experts and back. Beside it
-- tensor parallel, within attention and within each expert, and fully sharded data parallel.
--
--   tpgen plans/moe.lua -o out/ -D ep=2 -D dp=2                     a small one, to try it
--   tpgen plans/moe.lua -o out/ -D dp_shard=4 -D ep=2 -D tp=2       experts over 2 ranks, and fully sharded over 2
--   tpgen plans/moe.lua -o out/ -D preset=30b-a3b -D dp_shard=64 -D ep=8 -D device=H100 --ranks 0-7
--   tpgen plans/moe.lua -o out/ -D config=Mixtral-8x7B-v0.1/config.json -D dp=8 -D ep=8
--   out/run.sh --weights Mixtral-8x7B-v0.1 --data text.txt
--
-- aux_loss=0.02 adds the load balancing loss, times this. The metrics have the fullest expert's places over the mean,
-- and with places=true those of each expert of each layer. Settings of the model are below, those of the mesh and
-- of training in lib/.

local settings, parallel, training, attention = require "lib.settings", require "lib.parallel",
  require "lib.training", require "lib.attention"

-- ---------------------------------------------------------------------------------------- settings

-- What files call a layer's router and experts.
local MIXTRAL = {gate = "block_sparse_moe.gate.weight", experts = "block_sparse_moe.experts.{}.",
  gate_proj = "w1.weight", up_proj = "w3.weight", down_proj = "w2.weight"}
local QWEN = {gate = "mlp.gate.weight", experts = "mlp.experts.{}.", gate_proj = "gate_proj.weight",
  up_proj = "up_proj.weight", down_proj = "down_proj.weight"}

local presets = {
  debug = {dim = 64, n_layers = 2, n_heads = 4, n_kv_heads = 2, experts = 8, top_k = 2, hidden = 96, vocab = 256,
    seq = 64, batch = 4, files = MIXTRAL},
  ["8x7b"] = {dim = 4096, n_layers = 32, n_heads = 32, n_kv_heads = 8, experts = 8, top_k = 2, hidden = 14336,
    vocab = 32000, theta = 1e6, seq = 4096, files = MIXTRAL},
  ["30b-a3b"] = {dim = 2048, n_layers = 48, n_heads = 32, n_kv_heads = 4, head_dim = 128, experts = 128, top_k = 8,
    hidden = 768, vocab = 151936, theta = 1e6, eps = 1e-6, norms = "heads", seq = 4096, files = QWEN},
}

local function from_config(path)
  local config = settings.config(path, {"mixtral", "qwen3_moe", "olmoe"})
  local need, at = config.need, config.at
  config.only("hidden_act", "silu")
  config.only("attention_bias", false)
  config.only("clip_qkv", nil)
  local theta, scaling = settings.rope(at)
  local known = {
    dim = need("hidden_size"), n_layers = need("num_hidden_layers"), n_heads = need("num_attention_heads"),
    n_kv_heads = at.num_key_value_heads, head_dim = at.head_dim, vocab = need("vocab_size"), theta = theta,
    scaling = scaling, eps = at.rms_norm_eps or 1e-6, tied = at.tie_word_embeddings,
    top_k = need("num_experts_per_tok"), experts = at.num_local_experts or at.num_experts,
    seq = math.min(at.max_position_embeddings or 2048, 8192), pad = config.pad(need("vocab_size")),
    files = QWEN, hidden = at.intermediate_size, normalize = at.norm_topk_prob == true,
  }
  if at.model_type == "mixtral" then
    known.files, known.normalize, known.window = MIXTRAL, true, at.sliding_window
  elseif at.model_type == "qwen3_moe" then
    config.only("decoder_sparse_step", 1)
    if #(at.mlp_only_layers or {}) > 0 then error(path .. ": mlp_only_layers: this plan's layers all have experts") end
    known.hidden, known.norms = need("moe_intermediate_size"), "heads"
    known.window = at.use_sliding_window and at.sliding_window or nil
  else
    known.norms, known.eps = "whole", at.rms_norm_eps or 1e-5
  end
  return known
end

if args.config and args.preset then error("-D config and -D preset both say the model's shape") end
local known = args.config and from_config(args.config) or presets[args.preset or "debug"]
  or error("there is no preset '" .. tostring(args.preset) .. "': say 8x7b, 30b-a3b or debug")

local of = settings.of(known)
local setting, whole, flag = of.setting, of.whole, of.flag
local dim, n_layers, n_heads = whole("dim"), whole("n_layers"), whole("n_heads")
local n_kv_heads = whole("n_kv_heads", n_heads)
local head_dim = whole("head_dim", dim // n_heads)
local vocab, seq = whole("vocab"), whole("seq")
local theta, eps, tied = setting("theta", 10000), setting("eps", 1e-5), flag("tied", false)
local norms, window, aux_loss = setting("norms"), setting("window"), setting("aux_loss", 0)
local p = parallel.open(of)
local queries, keys, times = attention.layouts(p, n_heads, n_kv_heads)

-- --------------------------------------------------------------------------------------- the model

local INIT = nn.init.normal(0, 0.02)
local function linear(inputs, outputs) return nn.Linear(inputs, outputs, {bias = false, init = INIT}) end

-- The norm of q or k: of each head, as in Qwen 3; of all of them, as in OLMoE; or none.
local function head_norm(heads)
  local size = norms == "heads" and head_dim or norms == "whole" and heads * head_dim
  return size and nn.RMSNorm(size, {eps = eps}) or nn.Identity()
end

local Attention = nn.module("Attention", function(self)
  self.q_proj, self.k_proj = linear(dim, n_heads * head_dim), linear(dim, n_kv_heads * head_dim)
  self.v_proj, self.o_proj = linear(dim, n_kv_heads * head_dim), linear(n_heads * head_dim, dim)
  self.q_norm, self.k_norm = head_norm(n_heads), head_norm(n_kv_heads)
  function self:forward(x, cos, sin)
    local function heads(y, norm)
      if norms == "whole" then return attention.split(norm(y), head_dim) end
      return norm(attention.split(y, head_dim))
    end
    local q, k = heads(self.q_proj(x), self.q_norm):rotary(cos, sin), heads(self.k_proj(x), self.k_norm):rotary(cos, sin)
    local v = attention.repeated(attention.split(self.v_proj(x), head_dim), times)
    k = attention.repeated(k, times)
    local y = F.scaled_dot_product_attention(q, k, v, {is_causal = true, enable_gqa = true, window = window})
    return self.o_proj(attention.join(y))
  end
end)

local Layer = nn.module("Layer", function(self)
  self.input_layernorm = nn.RMSNorm(dim, {eps = eps})
  self.post_attention_layernorm = nn.RMSNorm(dim, {eps = eps})
  self.self_attn = Attention()
  self.mlp = nn.MoE(dim, {experts = whole("experts"), top_k = whole("top_k"), hidden = whole("hidden"),
    normalize = flag("normalize", true), init = INIT})
  function self:forward(x, cos, sin)
    x = x + self.self_attn(self.input_layernorm(x), cos, sin)
    local y, load = self.mlp(self.post_attention_layernorm(x))
    return x + y, load
  end
end)

-- The mean load of all layers, and the places of each: see nn.MoE.
local function add_load(sum, load)
  for i = 1, 2 do sum[i] = sum[i] and sum[i] + load[i] / n_layers or load[i] / n_layers end
  sum.places[#sum.places + 1] = load[1]
end

local Model = nn.module("Model", function(self)
  self.embed_tokens = nn.Embedding(vocab, dim, {init = INIT})
  self.layers = attention.layers(n_layers, Layer)
  self.norm = nn.RMSNorm(dim, {eps = eps})
  self.lm_head = tied and attention.Tied() or linear(dim, vocab)
  function self:forward(ids)
    local cos, sin = F.rotary_tables(seq, head_dim, theta, known.scaling)
    local x, sum, load = attention.padded(self.embed_tokens(ids), ids, setting("pad")), {places = {}}, nil
    for _, layer in ipairs(self.layers) do
      x, load = layer(x, cos, sin)
      add_load(sum, load)
    end
    x = self.norm(x)
    if tied then x = self.lm_head(x, self.embed_tokens.weight) else x = self.lm_head(x) end
    return {logits = x, balance = F.load_balancing_loss(sum[1], sum[2]), places = sum.places}
  end
end)

-- ---------------------------------------------------------------------------------------- the plan

local model = parallelize(Model(), p.mesh.tp, {
  embed_tokens = Rowwise{output_layouts = Shard(1)},
  norm = SequenceParallel(),
  lm_head = attention.output(tied),
  ["layers.*"] = {
    input_layernorm = SequenceParallel(), post_attention_layernorm = SequenceParallel(),
    self_attn = PrepareModuleInput{desired_input_layouts = {Replicate(), false, false}},
    ["self_attn.q_proj"] = Colwise{output_layouts = norms == "whole" and Replicate() or queries},
    ["self_attn.k_proj"] = Colwise{output_layouts = norms == "whole" and Replicate() or keys},
    ["self_attn.v_proj"] = Colwise{output_layouts = keys},
    ["self_attn.o_proj"] = Rowwise{output_layouts = Shard(1)},
    mlp = PrepareModuleInputOutput{
      desired_input_layouts = Replicate(), desired_output_layouts = {Shard(1), false, false},
    },
    ["mlp.experts"] = ExpertTensorParallel(),
  },
}, {async_tp = setting("async_tp")})
if p.borrows then parallelize(model, p.mesh.ep, {["layers.*.mlp.experts"] = ExpertParallel()}) end

-- The experts of a layer are a unit: they are cut over fewer ranks than the rest.
if p.borrows and p.dp_shard > 1 then
  for _, layer in ipairs(model.layers) do fully_shard(layer.mlp.experts, p.mesh.efsdp) end
end
p.shard(model, model.embed_tokens, model.layers, {model.norm, model.lm_head})

-- ------------------------------------------------------------------------------------ the training

local names = training.prefixed("model.", {"embed_tokens.weight", "layers.*.self_attn.**",
  "layers.*.input_layernorm.weight", "layers.*.post_attention_layernorm.weight", "norm.weight"})
names["layers.*.mlp.gate.weight"] = "model.layers.*." .. known.files.gate
for _, name in ipairs{"gate_proj", "up_proj", "down_proj"} do
  names["layers.*.mlp.experts." .. name] = "model.layers.*." .. known.files.experts .. known.files[name]
end

-- The fullest expert's places over the mean, of the layer where that is worst; and the places of all.
local function report(output)
  local places, all = F.stack(output.places, 0), {}
  all.expert_load = places:amax() * (whole("experts") / whole("top_k"))
  if flag("places", false) then all.places = places * (p.batch * seq) end
  return all
end

return train(training.options(of, p, {
  model = model,
  batch = p.distribute{
    input = tokens(vocab){p.batch, seq}, target = tokens(vocab, 1){p.batch, seq},
  },
  loss = function(output, batch)
    local loss = training.next_token_loss(output.logits, batch)
    if aux_loss == 0 then return loss end
    return loss + output.balance * aux_loss
  end,
  metrics = p.pp == 1 and not setting("microbatches") and report or nil,
  names = names,
}))
