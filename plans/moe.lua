-- Mixtral, Qwen3-MoE, OLMoE and DeepSeek-V3 from a Hugging Face folder or from the start: mixtures of experts. Experts are cut
-- over ep, which borrows ranks of data parallel: tokens travel to the ranks with their experts and back. Beside it
-- tensor parallel, within attention and within each expert, and fully sharded data parallel.
--
--   tpgen plans/moe.lua -o out/ -D ep=2 -D dp=2                     a small one, to try it
--   tpgen plans/moe.lua -o out/ -D dp_shard=4 -D ep=2 -D tp=2       experts over 2 ranks, and fully sharded over 2
--   tpgen plans/moe.lua -o out/ -D preset=30b-a3b -D dp_shard=64 -D ep=8 -D dtype=bfloat16 -D checkpoint=layer
--     -D device=H100 --target cuda --ranks 0-7
--   tpgen plans/moe.lua -o out/ -D preset=deepseek-v3 -D dp_shard=256 -D ep=64 -D dtype=bfloat16 -D checkpoint=layer
--     -D device=H100 --target cuda --ranks 0-7                      62 GB a rank: fewer ranks of 80 GB are too few
--   tpgen plans/moe.lua -o out/ -D config=Mixtral-8x7B-v0.1/config.json -D dp=8 -D ep=8
--   out/run.sh --weights Mixtral-8x7B-v0.1 --data text.txt
--
-- pp=2 makes stages, with lib/parallel.lua's schedule=, stages= and microbatches=.
--
-- aux_loss=0.02 adds the load balancing loss, times this. Its means are over all samples of the step, as Hugging Face's
-- are over those of a forward; in micro-batches over a rank's samples of one; with aux_batch=4 over each 4.
-- bias_balance=0.001 balances by a bias of the choice, as in DeepSeek-V3. capacity=1.25 drops what exceeds so many
-- times an expert's mean share of a sequence. bound=2 drops nothing: a rank has room for so many times the rows that
-- its experts get in balance, and more end the job; without it, or with bound=false, there is room for all that there
-- can be. The metrics have the fullest expert's places over the mean, what was dropped, and with places=true the places
-- of each expert of each layer. files=fused: files hold the experts of a layer as one tensor, as transformers does in
-- memory, gate and up in one; else a tensor for each expert. tpgen plans/moe.lua --help lists the settings.

local shared, parallel, training, attention, latent_attention = require "lib.settings", require "lib.parallel",
  require "lib.training", require "lib.attention", require "lib.latent_attention"

-- ---------------------------------------------------------------------------------------- settings

local shapes = require "lib.moe_shapes"
local known = shapes.of(args.config, args.preset, args.files)
-- A capacity takes the place of a preset's bound.
if args.capacity ~= nil then known.bound = nil end
local args = settings({
  {title = shared.files.title,
    {"preset", nil, "a shape in the place of a config; by default debug, a small one",
      choices = {"debug", "8x7b", "30b-a3b", "deepseek-v3"}},
    {"files", nil, "fused: files have the experts of a layer as one tensor; else a tensor for each", choices = {"fused"}},
  },
  shared.files,
  shared.model{
    "dim", "n_layers", "n_heads", "n_kv_heads", "head_dim",
    {"hidden", nil, "the width of an expert", type = "size"},
    "vocab", "seq", "theta", "eps", "tied", "pad",
    {"norms", nil, "of q and k: of each head, or of all heads together", choices = {"heads", "whole"}},
    "window",
  },
  {title = "experts",
    {"experts", nil, "experts of a layer", type = "size"},
    {"top_k", nil, "experts of a token", type = "size"},
    {"normalize", true, "a token's weights of its experts add up to 1"},
    {"capacity", nil, "an expert takes at most this many times its mean share of a sequence; the rest is dropped",
      type = "number"},
    {"bound", nil, "a rank has room for this many times the rows that its experts get in balance; false: for all",
      type = "number", choices = {false}},
    {"bias_balance", nil, "what a bias of the choice moves by after each step, to balance the experts", type = "number"},
    {"aux_loss", 0, "the factor of the load balancing loss", type = "number"},
    {"aux_batch", nil, "samples of which that loss takes means; by default all of the step, or of a micro-batch",
      type = "size"},
    {"places", false, "the metrics have the places of each expert of each layer"},
  },
  shared.documents, shared.adapters("q_proj|v_proj"), shared.mesh, shared.async_tp, shared.text, shared.training,
}, known)
local dim, n_layers, n_heads, n_kv_heads, head_dim = args.dim, args.n_layers, args.n_heads, args.n_kv_heads, args.head_dim
local vocab, seq = args.vocab, args.seq
local latent, rotated = known.latent, known.latent and known.latent.rope or head_dim
local dense = known.dense or 0 -- so many layers come first that have a plain network and no experts
if dense >= n_layers then
  error(string.format("the first %d layers have no experts, and there are %d: plans/causal_lm.lua trains such a model", dense, n_layers))
end
local theta, eps, tied = args.theta, args.eps, args.tied
local norms, window, aux_loss = args.norms, args.window, args.aux_loss
local has_documents = args.documents or args.packed
local p = parallel.open(args)

-- Over how many samples the load balancing loss takes its means: nil, all of the step. A step in micro-batches cannot
-- read what all make together: there a rank's samples of a micro-batch.
local function samples_of_load()
  local parts = p.microbatches()
  if aux_loss == 0 or args.aux_batch or parts == 1 then return args.aux_batch end
  if not parts or p.batch % (p.dp * parts) ~= 0 then
    error("aux_loss in micro-batches that are not of one size: say aux_batch, the samples of which it takes means")
  end
  return p.batch // (p.dp * parts)
end
local aux_batch = samples_of_load()
local bound = args.bound or nil
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
  function self:forward(x, cos, sin, documents)
    local function heads(y, norm)
      if norms == "whole" then return attention.split(norm(y), head_dim) end
      return norm(attention.split(y, head_dim))
    end
    local q, k = heads(self.q_proj(x), self.q_norm):rotary(cos, sin), heads(self.k_proj(x), self.k_norm):rotary(cos, sin)
    local v = attention.repeated(attention.split(self.v_proj(x), head_dim), times)
    k = attention.repeated(k, times)
    local y = F.scaled_dot_product_attention(q, k, v, {is_causal = true, enable_gqa = true, window = window, documents = documents})
    return self.o_proj(attention.join(y))
  end
end)

local function attention_of_layer()
  if not latent then return Attention() end
  return latent_attention.class({dim = dim, n_heads = n_heads, scaling = known.scaling, latent = latent},
    linear)()
end

local Dense = nn.module("Dense", function(self)
  self.gate_proj, self.up_proj = linear(dim, known.dense_hidden), linear(dim, known.dense_hidden)
  self.down_proj = linear(known.dense_hidden, dim)
  function self:forward(x) return self.down_proj(attention.act(known.act, self.gate_proj(x)) * self.up_proj(x)) end
end)

local function experts_of_layer()
  return nn.MoE(dim, {experts = args.experts, top_k = args.top_k, hidden = args.hidden,
    normalize = args.normalize, router = known.router, scale = known.weight_scale, groups = known.groups,
    top_groups = known.top_groups, shared = known.shared, act = attention.act_of(known.act), bias_balance = args.bias_balance,
    capacity = args.capacity, bound = bound, load_batch = aux_batch, init = INIT})
end

local Layer = nn.module("Layer", function(self, i)
  self.input_layernorm = nn.RMSNorm(dim, {eps = eps})
  self.post_attention_layernorm = nn.RMSNorm(dim, {eps = eps})
  self.self_attn = attention_of_layer()
  self.mlp = i < dense and Dense() or experts_of_layer()
  function self:forward(x, cos, sin, documents)
    x = x + self.self_attn(self.input_layernorm(x), cos, sin, documents)
    local y, load = self.mlp(self.post_attention_layernorm(x))
    return x + y, load
  end
end)

-- Of the loads of all layers (see nn.MoE), one part: a row a layer; and the mean of the rows. These come behind the
-- last layer: what goes from layer to layer beside the tokens would make the layers unlike each other, and no loop.
local function of_layers(loads, part)
  local rows = {}
  for i, load in ipairs(loads) do rows[i] = load[part] end
  return F.stack(rows, 0)
end
local function mean_of_layers(loads, part)
  local sum = loads[1][part]
  for i = 2, #loads do sum = sum + loads[i][part] end
  return sum / #loads
end

local Model = nn.module("Model", function(self)
  self.embed_tokens = nn.Embedding(vocab, dim, {init = INIT})
  self.layers = attention.layers(n_layers, Layer, true)
  self.norm = nn.RMSNorm(dim, {eps = eps})
  self.lm_head = tied and attention.Tied() or linear(dim, vocab)
  function self:forward(ids)
    local x, loads, load = attention.padded(self.embed_tokens(ids), ids, args.pad), {}, nil
    local cos, sin, documents, places
    if has_documents then
      documents, places = ids:documents()
      cos, sin = attention.tables_of_documents(places, seq, rotated, theta, known.scaling)
    else
      cos, sin = F.rotary_tables(seq, rotated, theta, known.scaling)
    end
    for _, layer in ipairs(self.layers) do
      x, load = layer(x, cos, sin, documents)
      loads[#loads + 1] = load
    end
    x = self.norm(x)
    if tied then x = self.lm_head(x, self.embed_tokens.weight) else x = self.lm_head(x) end
    return {logits = x, loads = loads}
  end
end)

-- ---------------------------------------------------------------------------------------- the plan

local function attention_styles()
  if latent then return latent_attention.styles(known, queries) end
  return {
    q_proj = Colwise{output_layouts = norms == "whole" and Replicate() or queries},
    k_proj = Colwise{output_layouts = norms == "whole" and Replicate() or keys},
    v_proj = Colwise{output_layouts = keys},
    o_proj = Rowwise{output_layouts = Shard(1)},
  }
end

local model = parallelize(Model(), p.mesh.tp, {
  embed_tokens = Rowwise{output_layouts = Shard(1)},
  norm = SequenceParallel(),
  lm_head = attention.output(tied),
  ["layers.*"] = {
    input_layernorm = SequenceParallel(), post_attention_layernorm = SequenceParallel(),
    self_attn = PrepareModuleInput{desired_input_layouts = {Replicate(), false, false, has_documents and false or nil}},
  },
  ["layers.*.self_attn"] = attention_styles(),
}, {async_tp = args.async_tp})

-- Of a network that takes every token: its output is cut along the sequence.
local function network(at)
  return {[at .. ".gate_proj"] = Colwise(), [at .. ".up_proj"] = Colwise(),
    [at .. ".down_proj"] = Rowwise{output_layouts = Shard(1)}}
end

for i, layer in ipairs(model.layers) do
  if i <= dense then
    parallelize(layer, p.mesh.tp, {mlp = PrepareModuleInput{desired_input_layouts = Replicate()}})
    parallelize(layer, p.mesh.tp, network("mlp"))
  else
    local outputs = {Shard(1), false, false} -- the tokens and their load
    if args.capacity then outputs[4] = false end
    parallelize(layer, p.mesh.tp, {
      mlp = PrepareModuleInputOutput{desired_input_layouts = Replicate(), desired_output_layouts = outputs},
      ["mlp.experts"] = ExpertTensorParallel(),
    })
    if known.shared then parallelize(layer, p.mesh.tp, network("mlp.shared_experts")) end
    if p.borrows then parallelize(layer, p.mesh.ep, {["mlp.experts"] = ExpertParallel()}) end
    -- The experts are a unit: they are cut over fewer ranks than the rest.
    if p.borrows and p.dp_shard > 1 then fully_shard(layer.mlp.experts, p.mesh.efsdp) end
  end
end
training.adapt(args, model, "CAUSAL_LM")
p.pipeline(model)

p.shard(model, model.embed_tokens, model.layers, {model.norm, model.lm_head})

-- ------------------------------------------------------------------------------------ the training

local names = training.prefixed("model.", {"embed_tokens.weight", "layers.*.self_attn.**",
  "layers.*.input_layernorm.weight", "layers.*.post_attention_layernorm.weight", "norm.weight"})
names["layers.*.mlp.gate.weight"] = "model.layers.*." .. known.file_names.gate
for _, name in ipairs{"gate_proj", "up_proj", "down_proj"} do
  names["layers.*.mlp.experts." .. name] = shapes.of_experts(known.file_names, name)
end
if known.shared then names["layers.*.mlp.shared_experts.**"] = "model.layers.*.mlp.shared_experts.**" end
if dense > 0 then names["layers.*.mlp.*_proj.weight"] = "model.layers.*.mlp.*_proj.weight" end
if args.bias_balance then
  names["layers.*.mlp.e_score_correction_bias"] = "model.layers.*.mlp.gate.e_score_correction_bias"
end

-- The fullest expert's places over the mean, of the layer where that is worst; the places that were dropped; and the
-- places of all experts: of a whole step. With accumulate a metric is the mean of the batches.
local has_places, batches = args.places, args.accumulate or 1
local function report(output)
  local tokens, places, all = batches * p.batch * seq, of_layers(output.loads, 1), {}
  if aux_batch then places = places:mean(1) end
  places = places * tokens
  all.expert_load = places:amax() * (args.experts / (args.top_k * tokens))
  if args.capacity then all.dropped = of_layers(output.loads, 3):sum() * batches end
  if has_places then all.places = places end
  return all
end

return train(training.options(args, p, {
  model = model,
  batch = training.next_token_batch(args, p, vocab, seq, {documents = args.documents, longest = args.longest}, args.packed),
  loss = function(output, batch)
    local loss = training.next_token_loss(output.logits, batch)
    if aux_loss == 0 then return loss end
    return loss + F.load_balancing_loss(mean_of_layers(output.loads, 1), mean_of_layers(output.loads, 2)) * aux_loss
  end,
  metrics = report,
  names = names,
}))
