-- generate.lua: generate, a program that continues texts, and the caches of its attention.
local core, base, plan = ...
local fail = base.fail
local nn, F, raw = plan.nn, base.F, base.raw

local attention, minimum, unsqueeze = F.scaled_dot_product_attention, F.minimum, F.unsqueeze
local MOST = 1 << 20

-- Facts of the entry that is traced now: {slots =, context =, type =, slot =, start =, over =}; nil outside of
-- generate. over: the dimension of the mesh whose ranks share the context; nil: each has all of it.
local entry

-- By instance: its caches, {k =, v =}.
local caches = {}

-- The shape of a cache of so many heads, and its layout: in parts of the context, where ranks share it.
local function cache_shape(heads, size)
  if not entry.over then return {entry.slots, heads, entry.context, size}, {} end
  local parts = base.ranks_along(entry.over)
  local length = (entry.context + parts - 1) // parts
  return {entry.slots, parts, heads, length, size}, base.placed_in_graph{[entry.over] = core.Shard(1)}
end

local LEAST, SMALL = -3.4028234663852886e38, 1e-37

-- Attention over all keys, from attention over parts of them, [parts, ..., size], and the logarithms of its
-- rows' sums, [parts, ...]. A row that sees no key is zeros.
local function merged(y, logs)
  local most = raw.maximum(core.append("amax", {logs}, {dims = {0}}), LEAST)
  local weight = raw.exp(raw.sub(logs, most))
  local function sum(x)
    return core.redistribute(core.append("sum", {x}, {dims = {0}, scalar = 1.0}),
      base.placed_in_graph{[entry.over] = core.Replicate()}, nil, nil, "attention over all parts of the context")
  end
  local total = raw.maximum(sum(weight), SMALL)
  return raw.div(sum(raw.mul(y, unsqueeze(weight, -1))), unsqueeze(total, -1))
end

-- nn.KVCache(): attention that remembers. In generate its forward(q, k, v) writes the keys and
-- values of the new tokens into the module's caches, after those of the sequence's earlier ones,
-- and gives the attention of q to all of them. In train and infer it is causal attention.
-- options: {scale =, window =}, as in scaled_dot_product_attention.
--- # Generation
--- nn.KVCache(): attention that remembers: `cache(q, k, v, {scale =, window =})`. In `generate` it writes the new
--- tokens' keys and values behind those of earlier ones; else it is causal attention.
nn.KVCache = base.own_class("KVCache", {}, function() return {}, {} end,
  function(self, _, q, k, v, options)
    local how = base.options(options == nil and {} or options, "KVCache's forward", {"scale", "window"})
    if not entry then
      return attention(q, k, v, {is_causal = true, scale = how.scale, window = how.window})
    end
    local shape, values = core.shape(k), core.shape(v)
    local kept = caches[self]
    if not kept then
      local function cache(name, size, what)
        local whole, placed = cache_shape(shape[2], size)
        return core.add_cache(name, whole, entry.type, placed, what .. " of all earlier tokens, for nn.KVCache")
      end
      kept = {k = cache("k", shape[4], "the keys"), v = cache("v", values[4], "the values")}
      caches[self] = kept
    end
    local window = how.window == nil and 0 or base.integer(how.window, "KVCache's window", 1, MOST)
    local scale = how.scale == nil and 1 / math.sqrt(shape[4]) or base.number(how.scale, "KVCache's scale",
      -math.huge, math.huge)
    local s = core.shape(q)
    local groups, each = shape[2], s[2] // shape[2]
    if groups * each ~= s[2] then
      fail("KVCache's forward: %d heads of queries cannot share %d of keys and values", s[2], groups)
    end
    local grouped = base.view(q, {s[1], groups, each, s[3], s[4]})
    local inputs = {grouped, k, v, kept.k, kept.v, entry.slot, entry.start}
    local rows, y = {s[1], groups, each, s[3]}, nil
    if entry.over then
      local parts = base.ranks_along(entry.over)
      y = merged(core.append("cached_attention_parts", inputs, {scalar = scale, window = window,
        shapes = {{parts, rows[1], rows[2], rows[3], rows[4], values[4]}, {parts, rows[1], rows[2], rows[3], rows[4]}}}))
    else
      y = core.append("cached_attention", inputs, {scalar = scale, window = window,
        shapes = {{rows[1], rows[2], rows[3], rows[4], values[4]}}})
    end
    return base.view(base.narrowed(y, v), {s[1], s[2], s[3], values[4]})
  end)

-- The positions of the new tokens: [sequences, tokens], each below the context.
local function positions_of(start, tokens, context)
  return minimum(unsqueeze(start, 1) + base.index_row(tokens), context - 1)
end

-- enum cache_choice
local CACHES = {fast = 0, small = 1, auto = 2}

local TYPES = {float32 = true, bfloat16 = true}

-- The logits of an entry: of one token of each sequence.
local function check_logits(logits, name, sequences)
  base.expect(logits, "tensor", "what generate's forward gives")
  local shape = core.shape(logits)
  local n = shape[1] == sequences and #shape or 0
  if n == 3 and shape[2] == 1 then n = 2 end
  if n ~= 2 then
    fail("generate's forward must give the logits of one token of each sequence, [%d, 1, vocabulary]; in %s "
      .. "it gives %s: take token `last`, as in x:index_select(1, last)", sequences, name, base.shape_text(shape))
  end
  logits = core.type(logits) == "float32" and logits or base.wide(logits)
  if not entry.over then return logits end
  return core.redistribute(logits, base.placed_in_graph{[entry.over] = core.Replicate()}, nil, nil, "the logits of every sequence")
end

-- The inputs of the two entries, in the order of the operator whole_text.
local INPUTS = {"prefill.tokens", "prefill.slot", "prefill.start", "prefill.last", "decode.tokens", "decode.slot",
  "decode.start"}

-- Whether a module in it is an nn.KVCache: then the model has caches where it says so. Else it is a model of whole
-- texts, from which the entries follow (gen/graph_passes/cut_time.c).
local function holds_cache(model)
  local seen = {}
  local function holds(module)
    if seen[module] then return false end
    seen[module] = true
    if base.class(module) == nn.KVCache then return true end
    local children = base.children(module)
    for i = 2, #children, 2 do
      if holds(children[i]) then return true end
    end
    return false
  end
  return holds(model)
end

local function whole_logits(logits, context)
  base.expect(logits, "tensor", "what the model gives")
  local shape = core.shape(logits)
  if #shape ~= 3 or shape[1] ~= 1 or shape[2] ~= context then
    fail("generate: the model must give the logits of every token, [1, %d, vocabulary]; it gives %s", context,
      base.shape_text(shape))
  end
  return logits
end

--- generate(options): a program that continues texts.
---   model: the module
---   vocab: tokens that the model knows
---   context: the most tokens of a sequence, the prompt's included
---   context_over: the dimension of the mesh whose ranks share the caches
---   slots = 1: sequences at once
---   prefill = 128: tokens of a prompt that one call takes
---   cache_dtype = "float32": or `"bfloat16"`
---   caches = "auto": of a model of whole texts: `"fast"`: keys and values; `"small"`: what they are made of, where
---     that takes fewer bytes; `"auto"`: the first if the memory of a rank is not known or they fit there
---   weight_dtype = "float32": or `"bfloat16"`, or `"int8"`: blocks of 32 numbers and a scale
---   forward: `function(model, tokens, positions, last)`: the logits `[sequences, 1, vocab]`; `last` is the index of
---     the last token, or nil where there is one token only
---   names: see `train`
---   seed = 0: of weights that are drawn
---   planner = "fastest": see `train`
---   expect: see `train`
---   matmul_precision = "float32": see `train`
local OPTIONS = base.option_names("generate", {"model", "vocab", "context", "slots", "prefill", "cache_dtype", "forward",
  "weight_dtype", "names", "context_over", "caches", "seed", "planner", "expect", "matmul_precision"})

function plan.generate(options)
  base.expect(options, "table", "what generate is given")
  base.options(options, "generate", OPTIONS)
  base.refuse_units("generate")
  base.refuse_context("generate")
  if base.has_float8 then fail("generate: a step has not all of the numbers that float8's scales are of: leave float8 out") end
  local function count(name, default, least, most)
    local n = options[name] == nil and default or options[name]
    if n == nil then fail("generate needs %s", name) end
    return base.integer(n, "generate's " .. name, least, most)
  end
  local vocab = count("vocab", nil, 1, (1 << 31) - 1)
  local context, slots = count("context", nil, 2, MOST), count("slots", 1, 1, 1024)
  local prefill = math.min(count("prefill", 128, 1, MOST), context)
  local type = options.cache_dtype == nil and "float32" or options.cache_dtype
  if not TYPES[type] then fail('generate\'s cache_dtype is "float32" or "bfloat16", not %s', base.a(type)) end
  local caches = options.caches == nil and "auto" or options.caches
  if not CACHES[caches] then fail('generate\'s caches is "auto", "fast" or "small", not %s', base.a(caches)) end
  local forward = options.forward == nil and function(model, ...) return model(...) end
    or base.expect(options.forward, "function", "generate's forward")

  local over
  if options.context_over ~= nil then
    local dims = base.mesh_dimensions(options.context_over, "generate's context_over")
    if #dims ~= 1 then fail("generate's context_over is one dimension of the mesh, not %d", #dims) end
    over = base.ranks_along(dims[1]) > 1 and dims[1] or nil
  end

  local batch = {}
  local function input(name, below, shape) batch[name] = plan.randint(0, below)(shape) end
  input("prefill.tokens", vocab, {1, prefill})
  input("prefill.slot", slots, {1})
  input("prefill.start", context, {1})
  input("prefill.last", prefill, {1})
  input("decode.tokens", vocab, {slots, 1})
  batch["decode.slot"] = plan.randint(-1, slots){slots}
  input("decode.start", context, {slots})
  local model, inputs = base.begin_program("generate", options, 1, batch)
  base.store_weights(model, options.weight_dtype == nil and "float32" or options.weight_dtype,
    "generate's weight_dtype")
  core.set_generation(slots, context, prefill, CACHES[caches])

  if not holds_cache(model) and options.forward == nil then
    local given = {}
    for _, name in ipairs(INPUTS) do given[#given + 1] = inputs[name] end
    local tokens = core.append("whole_text", given, {bfloat16 = type == "bfloat16" and 1 or 0,
      over = over and base.dims_in_graph{over}[1] + 1 or 0, shapes = {{1, context}}})
    core.set_output("logits", whole_logits(model(tokens), context))
    core.end_()
    return
  end

  local function trace(name, sequences, tokens, last)
    entry = {slots = slots, context = context, type = type, over = over, slot = inputs[name .. ".slot"],
      start = inputs[name .. ".start"]}
    local positions = positions_of(entry.start, tokens, context)
    local logits = base.one("generate's forward", forward(model, inputs[name .. ".tokens"], positions, last))
    core.set_output(name .. ".logits", check_logits(logits, name, sequences))
  end
  trace("prefill", 1, prefill, inputs["prefill.last"])
  core.begin_decode()
  trace("decode", slots, 1, nil)
  entry = nil
  core.end_()
end
