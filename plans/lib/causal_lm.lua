-- A language model of a family of lib/families.lua, and its parallel plan: tensor parallel within the layers, sequence parallel
-- between them, loss parallel at the end. One text for all families: what a family is stands in its table.

local hugging_face, shared = require "lib.hugging_face", require "lib.settings"
local parallel, training = require "lib.parallel", require "lib.training"
local attention, latent_attention = require "lib.attention", require "lib.latent_attention"
local families, experts = require "lib.families", require "lib.clamped_experts"

local M = {}

local INIT = nn.init.normal(0, 0.02)

local function capped(x, cap)
  if not cap then return x end
  return (x / cap):tanh() * cap
end

local function scaled(x, factor)
  if not factor or factor == 1 then return x end
  return x * factor
end

-- What of a model plans may have a setting of, under the same name.
local SHAPE = {"dim", "n_layers", "n_heads", "n_kv_heads", "head_dim", "hidden", "vocab", "eps", "tied", "pad"}
for _, name in ipairs(SHAPE) do SHAPE[name] = true end

-- ------------------------------------------------------------------------------------------ the parts

local RmsPlusOne = nn.module("Norm", function(self, size, eps)
  self.weight = nn.Parameter(zeros{size})
  function self:forward(x) return F.rms_norm(x, {size}, 1 + self.weight, eps) end
end)

local LayerPlusOne = nn.module("Norm", function(self, size, eps)
  self.weight, self.bias = nn.Parameter(zeros{size}), nn.Parameter(zeros{size})
  function self:forward(x) return F.layer_norm(x, {size}, 1 + self.weight, self.bias, eps) end
end)

-- Of each head of [batch, heads, sequence, size], by a weight of its own; like a layer's norm.
local HeadNorm = nn.module("Norm", function(self, heads, size, eps)
  self.weight = nn.Parameter(ones{heads, size})
  function self:forward(x) return F.layer_norm(x, {size}, nil, nil, eps) * self.weight:unsqueeze(1) end
end)

local function norm(c, size)
  if c.norm == "layer_without_weight" then return nn.LayerNorm(size, {eps = c.eps, elementwise_affine = false}) end
  if c.norm == "layer" then return nn.LayerNorm(size, {eps = c.eps}) end
  if c.norm == "layer_without_bias" then return nn.LayerNorm(size, {eps = c.eps, bias = false}) end
  if c.norm == "layer_plus_one" then return LayerPlusOne(size, c.eps) end
  if c.norm == "rms" then return nn.RMSNorm(size, {eps = c.eps}) end
  return RmsPlusOne(size, c.eps)
end

local function linear(inputs, outputs, bias)
  return nn.Linear(inputs, outputs, {bias = bias or false, init = INIT})
end

-- x times a weight [inputs, outputs], as GPT-2's.
local function conv1d(inputs, outputs) return nn.Conv1D(outputs, inputs, {init = INIT}) end

-- ALiBi: what is added to the scores, [1 or batch, heads, length, length]: as in transformers, and causal.
local function alibi(c, places)
  local whole = 1 << math.floor(math.log(c.n_heads, 2))
  local i = F.arange(c.n_heads):to("float32")
  local power = F.where(i:lt(whole), (i + 1) * (-8 / whole), ((i - whole) * 2 + 1) * (-4 / whole))
  local type = c.alibi == "scaled" and "bfloat16" or "float32"
  local bias = F.pow(2.0, power):to(type):view(1, -1, 1, 1) * places:to(type):view(-1, 1, 1, c.seq)
  if c.alibi == "scaled" then bias = bias:to("float32") * c.head_dim ^ -0.5 end
  local sees = places:view(-1, 1, 1, c.seq):le(places:view(-1, 1, c.seq, 1))
  return F.where(sees, bias, -math.huge)
end

-- p: of lib.parallel; i: the layer's number.
local Attention = nn.module("Attention", function(self, c, p, i)
  local a, bias, size = c.attention, c.bias or {}, c.head_dim
  local of_q, of_k = c.n_heads * size, c.n_kv_heads * size
  local queries, keys, times = attention.layouts(p, c.n_heads, c.n_kv_heads)
  local window = c.window and c.window(i)
  local rotates = c.rotary and not (c.rotates and not c.rotates(i))
  local make = a.kind == "conv" and conv1d or linear
  if a.kind == "separate" then
    self.q_proj = linear(c.dim, of_q, bias.qkv)
    self.k_proj = linear(c.dim, of_k, bias.qkv)
    self.v_proj = linear(c.dim, of_k, bias.qkv)
  else
    self[a.joined] = make(c.dim, of_q + 2 * of_k, bias.qkv)
  end
  self[a.out] = make(of_q, c.dim, bias.out)
  local of_query, of_key = table.unpack(c.query_names or {"q_norm", "k_norm"})
  if c.query_norms == "each" then
    self[of_query], self[of_key] = HeadNorm(c.n_heads, size, c.eps), HeadNorm(c.n_kv_heads, size, c.eps)
  elseif c.query_norms then
    local whole = c.query_norms == "whole"
    self[of_query] = norm(c, whole and of_q or size)
    self[of_key] = norm(c, whole and of_k or size)
  end
  if c.sinks then self.sinks = nn.Parameter(zeros{c.n_heads}) end
  local how = {is_causal = not c.alibi, enable_gqa = c.n_kv_heads < c.n_heads,
    scale = c.scale_of and c.scale_of(i) or c.scale, softcap = c.softcap,
    window = window and window < c.seq and window or nil,
    dropout_p = (c.attention_dropout or 0) > 0 and c.attention_dropout or nil}

  local function normed(y, own)
    if not own or c.norms_rotated then return attention.split(y, size) end
    if c.query_norms == "whole" then return attention.split(own(y), size) end
    return own(attention.split(y, size))
  end
  local function clipped(y)
    if not c.clip then return y end
    return F.clamp(y, -c.clip, c.clip)
  end
  -- q, k and v by heads.
  local function parts_of(x)
    if a.kind == "separate" then
      return clipped(normed(self.q_proj(x), self[of_query])), clipped(normed(self.k_proj(x), self[of_key])),
        attention.split(clipped(self.v_proj(x)), size)
    end
    local y = clipped(self[a.joined](x))
    if a.kind == "grouped" then return attention.ungroup(y, c.n_kv_heads, size) end
    local q, k, v = y:split({of_q, of_k, of_k}, -1)
    local function heads(z, layout)
      return attention.split((a.kind == "conv" or p.generates) and z or z:redistribute(p.mesh.tp, layout), size)
    end
    return heads(q, queries), heads(k, keys), heads(v, keys)
  end

  -- by_place: of each query a factor (query_scale), or what is added to the scores (alibi).
  function self:forward(x, cos, sin, documents, by_place)
    how.documents = documents
    local q, k, v = parts_of(x)
    if rotates then q, k = attention.rotate(q, cos, sin, c.pairs), attention.rotate(k, cos, sin, c.pairs) end
    if c.norms_rotated then q, k = self[of_query](q), self[of_key](k) end
    if c.query_scale then q = q * by_place elseif c.alibi then how.attn_mask = by_place end
    if a.kind ~= "grouped" then k, v = attention.repeated(k, times), attention.repeated(v, times) end
    how.sinks = self.sinks
    return self[a.out](attention.join(F.scaled_dot_product_attention(q, k, v, how)))
  end
end)

local MLP = nn.module("MLP", function(self, c)
  local m, bias = c.mlp, c.bias and c.bias.mlp
  local kind, make = m.kind, m.kind == "conv" and conv1d or linear
  if kind == "gated" then
    self.gate_proj = linear(c.dim, c.hidden, bias)
    self.up_proj = linear(c.dim, c.hidden, bias)
    self.down_proj = linear(c.hidden, c.dim, bias)
    function self:forward(x) return self.down_proj(attention.act(c.act, self.gate_proj(x)) * self.up_proj(x)) end
  elseif kind == "joined" then
    self[m.joined] = linear(c.dim, 2 * c.hidden)
    self[m.down] = linear(c.hidden, c.dim)
    function self:forward(x)
      local gate, up = self[m.joined](x):chunk(2, -1)
      return self[m.down](attention.act(c.act, gate) * up)
    end
  else
    self[m.up] = make(c.dim, c.hidden, bias)
    self[m.down] = make(c.hidden, c.dim, bias)
    function self:forward(x) return self[m.down](attention.act(c.act, self[m.up](x))) end
  end
end)

local function has_experts(c, i) return c.experts and not (c.experts.of_layer and not c.experts.of_layer(i)) end

local function network(c, i)
  local e = c.experts
  if not has_experts(c, i) then return MLP(c) end
  if e.kind == "clamped" then return experts.class(c)() end
  return nn.MoE(c.dim, {experts = e.count, top_k = e.top_k, hidden = e.hidden, normalize = e.normalize, router = e.router,
    act = attention.act_of(c.act), scale = e.scale, groups = e.groups, top_groups = e.top_groups, shared = e.shared,
    shared_gate = e.shared_gate, init = INIT, bias_balance = e.balanced and 0 or nil})
end

local Layer = nn.module("Layer", function(self, c, p, i)
  local names, of_attention, of_mlp = c.norms, c.attention.name, c.mlp.name
  for _, name in pairs(names) do self[name] = norm(c, c.dim) end
  self[of_attention] = c.latent and latent_attention.class({dim = c.dim, n_heads = c.n_heads, latent = c.latent,
    scaling = c.rotary.scaling}, linear)() or Attention(c, p, i)
  self[of_mlp] = network(c, i)
  if (c.dropout or 0) > 0 then self.drop = nn.Dropout(c.dropout) end
  local sliding = c.sliding_rotary and c.window(i)

  -- What is behind a part of the layer: a norm, dropout and a factor.
  local function behind(y, where)
    if names[where] then y = self[names[where]](y) end
    if self.drop then y = self.drop(y) end
    return scaled(y, c.residual_scale)
  end
  -- What a part of the layer reads. Where attention and the network read one value all of it is gathered once.
  local function before(x, where)
    return names[where] and self[names[where]](x) or x
  end
  function self:forward(x, cos, sin, cos2, sin2, documents, by_place)
    if sliding then cos, sin = cos2, sin2 end
    local y = before(x, "before_attention")
    if not c.parallel then
      x = x + behind(self[of_attention](y, cos, sin, documents, by_place), "behind_attention")
      return x + behind((self[of_mlp](before(x, "before_mlp"))), "behind_mlp")
    end
    local z = names.before_mlp and before(x, "before_mlp") or nil
    if not z and not p.generates then y = y:redistribute(p.mesh.tp, Replicate()) end
    return x + (behind(self[of_attention](y, cos, sin, documents, by_place), "behind_attention") + behind(self[of_mlp](z or y), "behind_mlp"))
  end
end)

-- The name of the last module, and whether it has the embedding's weight. A model of scores has a head of its own.
local function head_of(c)
  if c.scores then return "score", false end
  return c.files.head, c.tied
end

local CausalLM = nn.module("CausalLM", function(self, c, p)
  local f = c.files
  self[f.embed] = nn.Embedding(c.vocab, c.dim, {init = INIT})
  local first = f.first_position or 0
  if f.positions then self[f.positions] = nn.Embedding(c.positions + first, c.dim, {init = INIT}) end
  if f.embed_norm then self[f.embed_norm] = norm(c, c.dim) end
  if (c.embed_dropout or 0) > 0 then self.drop = nn.Dropout(c.embed_dropout) end
  local layers = {}
  for i = 1, c.n_layers do layers[i] = Layer(c, p, i - 1) end
  self[f.layers] = nn.ModuleList(layers)
  self[f.norm] = norm(c, c.dim)
  local head, tied = head_of(c)
  self[head] = tied and attention.Tied() or linear(c.dim, c.scores or c.vocab, not c.scores and c.bias and c.bias.head)

  local function tables(rotary, places)
    if not rotary then return nil, nil end
    local size = c.latent and c.latent.rope or math.floor(c.head_dim * (rotary.part or 1))
    if c.documents then return attention.tables_of_documents(places, c.seq, size, rotary.theta, rotary.scaling) end
    return F.rotary_tables(places, size, rotary.theta, hugging_face.scaling_of(rotary.scaling, c.seq))
  end
  function self:forward(ids)
    local places, documents = ids:positions(), nil
    if c.documents then documents, places = ids:documents() end
    local cos, sin = tables(c.rotary, places)
    local cos2, sin2 = tables(c.sliding_rotary, places)
    local by_place
    if c.query_scale then
      by_place = (1 + c.query_scale.beta * (1 + (places:to("float32") / c.query_scale.length):floor()):log()):view(-1, 1, c.seq, 1)
    elseif c.alibi then
      by_place = alibi(c, places)
    end
    local x = scaled(attention.padded(self[f.embed](ids), ids, c.pad), c.embed_scale)
    if f.positions then x = x + self[f.positions](first > 0 and places + first or places) end
    if f.embed_norm then x = self[f.embed_norm](x) end
    if self.drop then x = self.drop(x) end
    for _, layer in ipairs(self[f.layers]) do x = layer(x, cos, sin, cos2, sin2, documents, by_place) end
    x = self[f.norm](x)
    return capped(scaled(self[head](x, tied and self[f.embed].weight or nil), c.logits_scale), c.last_softcap)
  end
end)

-- ------------------------------------------------------------------------------------------- the plan

-- A part of a layer whose input is all of the sequence.
local function whole(inputs)
  local layouts = {Replicate()}
  for i = 2, inputs do layouts[i] = false end
  return PrepareModuleInput{desired_input_layouts = layouts}
end

-- Between the parts of a layer tokens are cut over tp; in a program that generates each rank has all of them.
local function between(p) return p.generates and Replicate() or Shard(1) end

-- The style of several projections in one weight, whose outputs are along `dim`.
local function joined(p, dim, bias, parts)
  if not p.generates then return Colwise{parts = parts} end
  return ModuleLayouts{parameters = {weight = Shard(dim), bias = bias and Shard(0) or nil}, parts = parts}
end

local function attention_styles(c, p)
  local a = c.attention
  local queries, keys = attention.layouts(p, c.n_heads, c.n_kv_heads)
  if c.latent then return latent_attention.styles(c, queries, between(p)) end
  local styles = {[a.out] = Rowwise{output_layouts = between(p)}}
  if a.kind == "separate" then
    local all = c.query_norms == "whole" and Replicate()
    if all and p.generates then -- those of all heads together have these names
      styles.q_norm = PrepareModuleOutput{desired_output_layouts = queries}
      styles.k_norm = PrepareModuleOutput{desired_output_layouts = keys}
    end
    styles.q_proj = Colwise{output_layouts = all or queries}
    styles.k_proj, styles.v_proj = Colwise{output_layouts = all or keys}, Colwise{output_layouts = keys}
  elseif a.kind == "grouped" then
    styles[a.joined] = Colwise{output_layouts = attention.grouped(p, c.n_kv_heads)}
  elseif a.kind == "conv" then
    styles[a.joined] = joined(p, 1, true, 3)
  else
    local size = c.head_dim
    styles[a.joined] = joined(p, 0, c.bias and c.bias.qkv, {c.n_heads * size, c.n_kv_heads * size, c.n_kv_heads * size})
  end
  return styles
end

local function network_styles(m, p)
  local styles = {[m.down or "down_proj"] = Rowwise{output_layouts = between(p)}}
  if m.kind == "gated" then styles.gate_proj, styles.up_proj = Colwise(), Colwise()
  elseif m.kind == "joined" then styles[m.joined] = joined(p, 0, false, 2)
  else styles[m.up] = Colwise() end
  return styles
end

local function plan_layer(c, p, layer, i, options)
  local names, of_mlp, styles = c.norms, c.mlp.name, {}
  local function add(prefix, more)
    for name, style in pairs(more) do styles[prefix .. name] = style end
  end
  for _, name in pairs(p.generates and {} or names) do styles[name] = SequenceParallel() end
  local one = c.parallel and not names.before_mlp
  local inputs = (c.query_scale or c.alibi) and 5 or c.documents and 4 or c.rotary and 3 or 1
  if not one then styles[c.attention.name] = whole(inputs) end
  add(c.attention.name .. ".", attention_styles(c, p))
  if not has_experts(c, i) then
    if not one then styles[of_mlp] = whole(1) end
    add(of_mlp .. ".", network_styles(c.mlp, p))
    return parallelize(layer, p.mesh.tp, styles, options)
  end
  local clamped = c.experts.kind == "clamped"
  styles[of_mlp] = PrepareModuleInputOutput{desired_input_layouts = Replicate(),
    desired_output_layouts = clamped and between(p) or {between(p), false, false}} -- the tokens and their load
  styles[of_mlp .. ".experts"] = clamped and experts.style() or ExpertTensorParallel()
  if c.experts.shared then add(of_mlp .. ".shared_experts.", network_styles({kind = "gated"}, p)) end
  return parallelize(layer, p.mesh.tp, styles, options)
end

-- What files call the parameters.
local function names_of(c)
  local f, e, of_attention, of_mlp = c.files, c.experts, c.attention.name, c.mlp.name
  local has_weights = c.norm ~= "layer_without_weight"
  local names = training.prefixed(f.prefix, {f.embed .. ".weight", has_weights and f.norm .. ".*" or nil})
  if f.positions then names[f.positions .. ".weight"] = f.prefix .. f.positions .. ".weight" end
  if f.head_file and not c.tied and not c.scores then names[f.head .. ".weight"] = f.head_file .. ".weight" end
  if f.embed_norm then names[f.embed_norm .. ".*"] = f.prefix .. f.embed_norm .. ".*" end
  local function layers(own, file) names[f.layers .. ".*." .. own] = f.prefix .. f.layers .. ".*." .. (file or own) end
  local by_head = c.query_norms and c.norms_by_head
  if e and e.kind == "clamped" or not e and not c.mlp.in_layer and not by_head then
    layers("**")
    return names
  end
  -- Each pattern names what the others leave.
  if by_head then
    layers(of_attention .. ".*_proj.*")
    for _, name in ipairs(c.query_names) do
      layers(of_attention .. "." .. name .. ".weight", of_attention .. "." .. name .. ".norms.{}.weight")
    end
  else
    layers(of_attention .. ".**")
  end
  for _, name in pairs(has_weights and c.norms or {}) do layers(name .. ".*") end
  if c.mlp.in_layer then layers(of_mlp .. ".**", "**") end
  local dense, sparse = false, false
  for i = 0, c.n_layers - 1 do
    if has_experts(c, i) then sparse = true else dense = true end
  end
  if dense and not c.mlp.in_layer then layers(e and of_mlp .. ".*_proj.weight" or of_mlp .. ".**") end
  if not sparse then return names end
  if e.shared then layers("mlp.shared_experts.**", e.shared_gate and "mlp.shared_expert.**") end
  if e.shared_gate then layers("mlp.shared_expert_gate.weight") end
  layers("mlp.gate.weight", e.files.gate)
  for _, name in ipairs{"gate_proj", "up_proj", "down_proj"} do
    names[f.layers .. ".*.mlp.experts." .. name] = families.expert_name(f.prefix .. f.layers, e.files, name)
  end
  if e.balanced then layers("mlp.e_score_correction_bias", "mlp.gate.e_score_correction_bias") end
  return names
end

-- The settings of a plan that trains c, of families.read, and may change it. rows: of the model's shape, as for
-- lib/settings.lua; known: what rows of the plan's own are by default; longest: `seq` is by default at most this; more: further
-- sections.
function M.settings(c, rows, known, longest, more)
  local values = {theta = c.rotary and c.rotary.theta, seq = math.min(c.positions, longest or math.huge), batch = c.batch}
  for _, name in ipairs(SHAPE) do values[name] = c[name] end
  for name, value in pairs(known or {}) do values[name] = value end
  local of_adapters = c.latent and "q_proj|q_b_proj|kv_b_proj" or c.attention.kind == "separate" and "q_proj|v_proj" or c.attention.joined
  local sections = {shared.files, shared.model(rows), shared.documents, shared.adapters(of_adapters), shared.mesh,
    shared.async_tp, shared.text, shared.training}
  if more then
    sections = {shared.files, shared.model(rows), shared.adapters(of_adapters), shared.mesh, shared.async_tp, shared.training}
    for _, section in ipairs(more) do sections[#sections + 1] = section end
  end
  local args = settings(sections, values)
  for _, row in ipairs(rows) do
    local name = type(row) == "table" and row[1] or row
    if name == "theta" then if c.rotary then c.rotary.theta = args.theta end elseif SHAPE[name] then c[name] = args[name] end
  end
  return args
end

-- The model of a config.json, for a program that generates: without dropout.
function M.read(path)
  local c = families.complete(families.read(path))
  c.dropout, c.embed_dropout, c.attention_dropout, c.pad = nil, nil, nil, nil
  return c
end

-- The model of c for texts of `length` tokens, with its styles along tp, and what files call its parameters. p: of
-- lib/parallel.lua; generates =: of a program that generates.
function M.open(c, p, length, options)
  c.seq = length
  local f = c.files
  local styles = {[f.embed] = Rowwise{output_layouts = between(p)}}
  if not c.scores then styles[f.head] = attention.output(c.tied) end
  if not p.generates then
    styles[f.norm] = SequenceParallel()
    if f.embed_norm then styles[f.embed_norm] = SequenceParallel() end
  end
  local model = parallelize(CausalLM(c, p), p.mesh.tp, styles, options)
  for i, layer in ipairs(model[f.layers]) do plan_layer(c, p, layer, i - 1, options) end
  return model, names_of(c)
end

-- Checks that c can be trained with these settings. documents: whether there are some: not nil and not false.
local function check(c, documents)
  families.complete(c)
  if c.router_loss then error("output_router_logits adds the router's loss; plans/moe.lua has it, by -D aux_loss=") end
  c.documents = documents
end

local function shard(c, p, model)
  local f = c.files
  p.context(model)
  local second = f.positions or f.embed_norm
  local first = second and {model[f.embed], model[second]} or model[f.embed]
  p.shard(model, first, model[f.layers], {model[f.norm], model[head_of(c)]})
end

-- The model of c to train with these settings, laid out over the mesh: of lib/parallel.lua, the model, what files call its
-- parameters. documents: see check.
function M.build(c, args, documents)
  check(c, documents)
  local p = parallel.open(args)
  if p.ep > 1 then error("ep is for plans/moe.lua") end
  local model, names = M.open(c, p, args.seq, {async_tp = args.async_tp})
  training.adapt(args, model, "CAUSAL_LM")
  shard(c, p, model)
  return p, model, names
end

-- A further model, beside that of build, which is not trained, and what files call its parameters, its head's among them.
function M.add(c, args, p, documents)
  check(c, documents)
  local model, names = M.open(c, p, args.seq, {async_tp = args.async_tp})
  shard(c, p, model)
  return freeze(model:eval()), names
end

-- What files call all parameters of c: with those that names_of leaves out, whose name is their own.
function M.all_names(c, names)
  local head = head_of(c) .. ".weight"
  if not c.tied then names[head] = names[head] or head end
  return names
end

-- Trains c with these settings.
function M.train(c, args)
  local p, model, names = M.build(c, args, args.documents or args.packed)
  return train(training.next_token(args, p, model, c.vocab, c.seq, names,
    {documents = args.documents, longest = args.longest}, args.packed))
end

return M
