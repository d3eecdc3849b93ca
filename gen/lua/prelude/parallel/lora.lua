-- lora.lua: lora, as in PEFT: low-rank adapters of Linear, Conv1D and Embedding modules. A Linear or a
-- Conv1D gets two modules, lora_A and lora_B, and gives W x + b + scale B A dropout(x). An Embedding gets
-- two parameters, lora_embedding_A and lora_embedding_B, and gives the rows of W + scale (B A)^T. W and b,
-- and all other parameters, are frozen.
local core, base, plan = ...
local fail = base.fail

local dropout, embedding, linear, raw = base.F.dropout, base.F.embedding, base.F.linear, base.raw
local Linear, init = plan.nn.Linear, plan.nn.init

-- The classes that can have adapters. transposed: its weight is [in, out], as (B A)^T; a cut of the outputs cuts B.
local KINDS = {
  [base.Linear] = {cuts = {["Shard(0)"] = "b", ["Shard(1)"] = "a"}},
  [base.Conv1D] = {cuts = {["Shard(1)"] = "b", ["Shard(0)"] = "a"}, transposed = true},
  [base.Embedding] = {cuts = {["Shard(1)"] = "b", ["Shard(0)"] = "a"}, transposed = true},
}

-- The options under PEFT's names.
local PEFT = {r = "rank", lora_alpha = "alpha", target_modules = "match", lora_dropout = "dropout"}
local KEYS = {"rank", "alpha", "match", "dropout", "use_rslora", "task_type", "weight_dtype", "skip"}

local adapters = {}      -- in the order of the calls: {module =, kind =, scale =, a =, b =, used =}
local adapter_of = {}    -- by module: the same
local adapter_of_weight = {} -- by the weight of an adapted module: the same
local is_adapter = {}    -- by module: it is a lora_A or a lora_B
local config             -- the options of all calls

local known = table.move(KEYS, 1, #KEYS, 1, {})
for peft in pairs(PEFT) do known[#known + 1] = peft end
base.option_names("lora", known)

local function options_of(options)
  local given = {}
  options = base.options(options, "lora", known)
  for key, value in pairs(options) do
    local name = PEFT[key] or key
    if given[name] ~= nil then fail("lora: %s and %s are one option", key, name) end
    given[name] = value
  end
  local c = {
    rank = base.integer(given.rank == nil and 8 or given.rank, "lora's rank", 1, 1 << 20),
    alpha = base.number(given.alpha == nil and 8 or given.alpha, "lora's alpha", 0, math.huge),
    dropout = base.number(given.dropout or 0, "lora's dropout", 0, 1),
    use_rslora = base.boolean(given.use_rslora or false, "lora's use_rslora"),
    task_type = given.task_type,
  }
  if c.task_type ~= nil then base.expect(c.task_type, "string", "lora's task_type") end
  if given.match == nil then fail('lora needs match: which modules, as in match = {"wq", "wv"}') end
  c.scale = c.alpha / (c.use_rslora and math.sqrt(c.rank) or c.rank)
  return c, base.patterns(given.match, "lora's match")
end

-- One file of adapters has one rank and one scale.
local function check_same(c)
  for _, key in ipairs{"rank", "alpha", "dropout", "use_rslora", "task_type"} do
    if config and config[key] ~= c[key] then
      fail("lora: its %s is %s here and %s in line %d: all adapters of a model have the same", key,
        tostring(c[key]), tostring(config[key]), config.line)
    end
  end
end

-- As PEFT's target_modules: a name matches the end of a path.
local function matched(model, pattern)
  local whole = string.gsub(pattern, "[^|]+", function(one)
    return string.sub(one, 1, 2) == "**" and one or "**." .. one
  end)
  local is_plain, list, other = not string.find(pattern, "[*?%[]"), {}, nil
  for _, module in ipairs(core.matching({model}, whole)) do
    if not KINDS[base.class(module)] then
      other = other or module
    elseif not is_adapter[module] then
      list[#list + 1] = module
    end
  end
  if #list == 0 or (is_plain and other) then
    if not other then base.nothing_matches(pattern, model) end
    fail("lora: '%.80s' names a %s: an adapter is for a Linear, a Conv1D or an Embedding", pattern,
      base.class_name(other))
  end
  return list
end

-- Makes the modules of a projection's adapter, and its forward.
local function adapt_projection(module, adapter, c, inputs, outputs)
  module.lora_A = Linear(inputs, c.rank, false)
  module.lora_B = Linear(c.rank, outputs, false, nil, nil, init.constant(0))
  is_adapter[module.lora_A], is_adapter[module.lora_B] = true, true
  adapter.a, adapter.b = module.lora_A, module.lora_B
  return function(self, x)
    local low = raw.mul(self.lora_A(c.dropout > 0 and dropout(x, c.dropout) or x), adapter.scale)
    return base.project(x, self.weight, self.bias, adapter.kind.transposed, {x = low, weight = self.lora_B.weight})
  end
end

-- The same of an Embedding. There is no dropout, as in PEFT.
local function adapt_embedding(module, adapter, c)
  local rows, size = table.unpack(core.shape(module.weight))
  module.lora_embedding_A = core.parameter("lora", {c.rank, rows}, "constant", 0.0, 0.0)
  module.lora_embedding_B = core.parameter("lora", {size, c.rank}, "normal", 0.0, 1.0)
  return function(self, ids)
    local low = embedding(ids, raw.permute(self.lora_embedding_A, {1, 0}))
    return raw.add(embedding(ids, self.weight), linear(raw.mul(low, adapter.scale), self.lora_embedding_B))
  end
end

local adapters_are_off = false

local function adapt(module, c)
  local class, forward = base.class(module), nil
  if adapter_of[module] then
    fail("lora: the %s of line %d has an adapter already", base.class_name(module), base.line_of(module))
  end
  if module.weight == nil then
    fail("lora: the %s of line %d has the weight of another module, which can have the adapter", base.class_name(module),
      base.line_of(module))
  end
  local adapter = {module = module, kind = KINDS[class], scale = c.scale}
  if class == base.Embedding then
    forward = adapt_embedding(module, adapter, c)
  else
    local first, second = table.unpack(core.shape(module.weight))
    if class == base.Linear then first, second = second, first end
    forward = adapt_projection(module, adapter, c, first, second)
  end
  function adapter.forward(self, x)
    adapter.used = true
    if not adapters_are_off then return forward(self, x) end
    if class == base.Embedding then return embedding(x, self.weight) end
    return base.project(x, self.weight, self.bias, adapter.kind.transposed)
  end
  base.set_adapter(module, adapter.forward)
  adapters[#adapters + 1], adapter_of[module], adapter_of_weight[module.weight] = adapter, adapter, adapter
end

-- Of an operator of an archive, which does not call the module: what an adapted module gives for x, if it is a module of the
-- class with this weight and bias; else nil.
function base.adapted(class, x, weight, bias)
  local adapter = adapter_of_weight[weight]
  local module = adapter and adapter.module
  if not adapter or base.class(module) ~= class or (class ~= base.Embedding and module.bias ~= bias) then return nil end
  return adapter.forward(module, x)
end

--- # Adapters
--- lora(model, options): adapters of Linear, Conv1D and Embedding modules, as in PEFT; all other parameters are
--- frozen.
---   rank = 8: of the adapters
---   alpha = 8: their factor, times the rank
---   match: a pattern of the modules' names, or of their ends; or a list
---   dropout = 0: of the adapters' inputs
---   use_rslora = false: the factor is alpha over the root of the rank
---   task_type: for PEFT's file
---   weight_dtype = "float32": how the frozen matrices are stored: see store_frozen; `"nf4"` is QLoRA
---   skip: of these, modules that stay as they are
---   r: PEFT's name of rank
---   lora_alpha: PEFT's name of alpha
---   target_modules: PEFT's name of match
---   lora_dropout: PEFT's name of dropout
function plan.lora(model, options)
  base.expect(model, "module", "the first argument of lora")
  if base.begun then fail("lora comes before train and infer") end
  local c, patterns = options_of(options)
  check_same(c)
  if not config then core.freeze(model, true) end
  c.line = core.line()
  config = config or c
  core.look_anew()
  if options.skip ~= nil and options.weight_dtype == nil then fail("lora: skip is of weight_dtype, which is not given") end
  if options.weight_dtype ~= nil then plan.store_frozen(model, options.weight_dtype, {skip = options.skip}) end
  for _, pattern in ipairs(patterns) do
    for _, module in ipairs(matched(model, pattern)) do adapt(module, c) end
  end
  return model
end

--- without_adapters(model, ...): what the model gives with these arguments without its adapters and without dropout: the
--- model before the training, as a reference beside it.
function plan.without_adapters(model, ...)
  base.expect(model, "module", "the first argument of without_adapters")
  if not core.recording() then fail("without_adapters belongs in forward, loss or metrics") end
  if #adapters == 0 then fail("without_adapters: the model has no adapters: lora gives it some") end
  local trains, off = base.training, adapters_are_off
  local function back(...)
    base.training, adapters_are_off = trains, off
    return ...
  end
  base.training, adapters_are_off = false, true
  return back(model(...))
end

-- ------------------------------------------------------------------------------------ parallelism

-- Called before the model is part of the graph, for each module that has a style: B of a projection in
-- parts is in the same parts.
function base.part_adapter(module, style)
  local adapter = adapter_of[module]
  if style.prepare and adapter and adapter.b then style.prepare(adapter.b) end
end

-- Called for each module that has a style: the adapter is cut as the weight is. A cut of its outputs
-- cuts B, [out, rank], and a cut of its inputs A, [rank, in]; the other matrix is whole on every rank.
function base.style_adapter(module, dim, style)
  local adapter, class = adapter_of[module], base.class(module)
  if not adapter then return end
  local places = style.requests(class, module)
  local place = type(places) == "table" and places.weight
  local which = place and adapter.kind.cuts[tostring(place)]
  if not which then return end
  local cut = core.Shard(which == "b" and 0 or 1)
  if class == base.Embedding then
    local key = which == "b" and "lora_embedding_B" or "lora_embedding_A"
    core.apply_style({module}, dim, style.name, style.line, function() return {[key] = cut}, {} end)
  else
    core.apply_style({adapter[which]}, dim, style.name, style.line, function() return {weight = cut}, {} end)
  end
end

-- ------------------------------------------------------------------------------------------ files

local function text(s)
  return '"' .. string.gsub(s, '[%c"\\]', function(c)
    return string.format("\\u%04x", string.byte(c))
  end) .. '"'
end

local function last_part(path) return string.match(path, "[^.]*$") end

-- The paths, in others' files, of all modules below that could have an adapter and have none.
local function others_below(module, list)
  local children = base.children(module)
  for i = 2, #children, 2 do
    local child = children[i]
    if KINDS[base.class(child)] and child.weight ~= nil and not is_adapter[child] and not adapter_of[child] then
      list[#list + 1] = core.weight_path(child)
    end
    others_below(child, list)
  end
  return list
end

-- The ends of the paths if they name only these modules, else whole paths.
local function targets(model, paths)
  local ends, list = {}, {}
  for _, path in ipairs(paths) do
    if not ends[last_part(path)] then
      ends[last_part(path)] = true
      list[#list + 1] = last_part(path)
    end
  end
  for _, path in ipairs(others_below(model, {})) do
    if ends[last_part(path)] then return paths end
  end
  return list
end

-- Called when the parameters have their names in others' files: gives the adapters theirs, and
-- describes them as PEFT's adapter_config.json does.
function base.describe_adapters(model)
  if not config then return end
  local paths, shown, is_transposed = {}, {}, false
  for i, adapter in ipairs(adapters) do
    local module = adapter.module
    if not base.index(module) then
      fail("lora: the %s of line %d is not part of the model", base.class_name(module), base.line_of(module))
    end
    if base.class(module) == base.Embedding then
      for _, key in ipairs{"lora_embedding_A", "lora_embedding_B"} do
        core.name_adapter(module, module[key], key)
      end
    else
      core.name_adapter(module, module.lora_A.weight, "lora_A.weight")
      core.name_adapter(module, module.lora_B.weight, "lora_B.weight")
      is_transposed = adapter.kind.transposed or false
    end
    if adapter.kind.transposed then core.add_transposed(module) end
    paths[i] = core.weight_path(module)
  end
  for i, name in ipairs(targets(model, paths)) do shown[i] = text(name) end
  core.set_adapter(string.format('{"alpha_pattern": {}, "base_model_name_or_path": null, "bias": "none", '
    .. '"fan_in_fan_out": %s, "inference_mode": true, "init_lora_weights": true, "lora_alpha": %.17g, '
    .. '"lora_dropout": %.17g, "modules_to_save": null, "peft_type": "LORA", "r": %d, '
    .. '"rank_pattern": {}, "target_modules": [%s], "task_type": %s, "use_dora": false, '
    .. '"use_rslora": %s}', is_transposed, config.alpha, config.dropout, config.rank, table.concat(shown, ", "),
    config.task_type and text(config.task_type) or "null", config.use_rslora), config.scale)
end

-- Called after the forward: a module whose weight is used without a call of it has no adapter's part.
function base.check_adapters()
  for _, adapter in ipairs(adapters) do
    if not adapter.used then
      fail("lora: no forward calls the %s of line %d, so that its adapter has no effect: write self.name(x) "
        .. "instead of a function of self.name.weight, or do not match it", base.class_name(adapter.module),
        base.line_of(adapter.module))
    end
  end
end
