-- lora.lua: lora, as in PEFT: low-rank adapters of Linear modules. A Linear gets two modules, lora_A and
-- lora_B, and gives W x + b + scale B A dropout(x). W and b, and all other parameters, are frozen.
local core, base, plan = ...
local fail = base.fail

local linear, dropout, raw = base.F.linear, base.F.dropout, base.raw
local Linear, init = plan.nn.Linear, plan.nn.init

-- The options under PEFT's names.
local PEFT = {r = "rank", lora_alpha = "alpha", target_modules = "match", lora_dropout = "dropout"}
local KEYS = {"rank", "alpha", "match", "dropout", "use_rslora", "task_type"}

local adapters = {}      -- in the order of the calls: {module =, scale =, used =}
local is_adapter = {}    -- by module: it is a lora_A or a lora_B
local config             -- the options of all calls

local function options_of(options)
  local known, given = table.move(KEYS, 1, #KEYS, 1, {}), {}
  for peft in pairs(PEFT) do known[#known + 1] = peft end
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
  if given.match == nil then fail('lora needs match: which Linear modules, as in match = {"wq", "wv"}') end
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

-- As PEFT's target_modules: a name stands for the end of a path.
local function matched(model, pattern)
  local whole = string.gsub(pattern, "[^|]+", function(one)
    return string.sub(one, 1, 2) == "**" and one or "**." .. one
  end)
  local is_plain, list, other = not string.find(pattern, "[*?%[]"), {}, nil
  for _, module in ipairs(core.matching({model}, whole)) do
    if base.class(module) == base.Linear then
      if not is_adapter[module] then list[#list + 1] = module end
    else
      other = other or module
    end
  end
  if #list == 0 or (is_plain and other) then
    if not other then base.nothing_matches(pattern, model) end
    fail("lora: '%.80s' names a %s: an adapter is for a Linear", pattern, base.class_name(other))
  end
  return list
end

-- The bias comes last: where ranks have pending sums of the products, one reduction serves both.
local function forward_of(adapter, p)
  return function(self, x)
    adapter.used = true
    local low = self.lora_A(p > 0 and dropout(x, p) or x)
    local y = raw.add(linear(x, self.weight), self.lora_B(raw.mul(low, adapter.scale)))
    return self.bias and raw.add(y, self.bias) or y
  end
end

local function adapt(module, c)
  if module.lora_A then
    fail("lora: the Linear of line %d has an adapter already", base.line_of(module))
  end
  local adapter = {module = module, scale = c.scale}
  module.lora_A = Linear(module.in_features, c.rank, false)
  module.lora_B = Linear(c.rank, module.out_features, false, nil, nil, init.constant(0))
  is_adapter[module.lora_A], is_adapter[module.lora_B] = true, true
  base.set_adapter(module, forward_of(adapter, c.dropout))
  adapters[#adapters + 1] = adapter
end

-- lora(model, {rank =, alpha =, match =, dropout =, use_rslora =, task_type =}): the model. match: a
-- pattern of the paths, or of their ends, of Linear modules; or a list of patterns.
function plan.lora(model, options)
  base.expect(model, "module", "the first argument of lora")
  if base.begun then fail("lora comes before train and infer") end
  local c, patterns = options_of(options)
  check_same(c)
  if not config then core.freeze(model, true) end
  c.line = core.line()
  config = config or c
  core.look_anew()
  for _, pattern in ipairs(patterns) do
    for _, module in ipairs(matched(model, pattern)) do adapt(module, c) end
  end
  return model
end

-- ------------------------------------------------------------------------------------ parallelism

local SHARDED = {["Shard(0)"] = "lora_B", ["Shard(1)"] = "lora_A"}

-- Called for each module that has a style: the adapter is cut as the weight is. A cut of its outputs
-- cuts B, and a cut of its inputs A; the other matrix is whole on every rank.
function base.style_adapter(module, dim, style)
  if base.class(module) ~= base.Linear or not module.lora_A then return end
  if style.prepare then
    fail("lora: the Linear of line %d is cut part by part, by line %d: an adapter is for a Linear of one "
      .. "part", base.line_of(module), style.line)
  end
  local places = style.wishes(base.Linear, module)
  local place = type(places) == "table" and places.weight or nil
  local name = place and (SHARDED[tostring(place)] or "lora_B")
  if not name or tostring(place) == "Replicate()" then return end
  core.apply_style({module[name]}, dim, style.name, style.line, function()
    return {weight = place}, {}
  end)
end

-- ------------------------------------------------------------------------------------------ files

local function text(s)
  return '"' .. string.gsub(s, '[%c"\\]', function(c)
    return string.format("\\u%04x", string.byte(c))
  end) .. '"'
end

local function last_part(path) return string.match(path, "[^.]*$") end

-- The paths, in others' files, of all Linear modules below that have no adapter.
local function others_below(module, list)
  local children = base.children(module)
  for i = 2, #children, 2 do
    local child = children[i]
    if base.class(child) == base.Linear and not is_adapter[child] and not child.lora_A then
      list[#list + 1] = core.weight_path(child)
    end
    others_below(child, list)
  end
  return list
end

-- The ends of the paths if they name these modules alone, else whole paths.
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
  local paths, shown = {}, {}
  for i, adapter in ipairs(adapters) do
    if not base.index(adapter.module) then
      fail("lora: the Linear of line %d is not part of the model", base.line_of(adapter.module))
    end
    core.name_adapter(adapter.module, adapter.module.lora_A, adapter.module.lora_B)
    paths[i] = core.weight_path(adapter.module)
  end
  for i, name in ipairs(targets(model, paths)) do shown[i] = text(name) end
  core.set_adapter(string.format('{"alpha_pattern": {}, "base_model_name_or_path": null, "bias": "none", '
    .. '"fan_in_fan_out": false, "inference_mode": true, "init_lora_weights": true, "lora_alpha": %.17g, '
    .. '"lora_dropout": %.17g, "modules_to_save": null, "peft_type": "LORA", "r": %d, '
    .. '"rank_pattern": {}, "target_modules": [%s], "task_type": %s, "use_dora": false, '
    .. '"use_rslora": %s}', config.alpha, config.dropout, config.rank, table.concat(shown, ", "),
    config.task_type and text(config.task_type) or "null", config.use_rslora), config.scale)
end

-- Called after the forward: a Linear whose weight is used without a call of it has no adapter's part.
function base.check_adapters()
  for _, adapter in ipairs(adapters) do
    if not adapter.used then
      fail("lora: no forward calls the Linear of line %d, so that its adapter has no effect: write "
        .. "self.name(x) instead of F.linear(x, self.name.weight), or do not match it",
        base.line_of(adapter.module))
    end
  end
end
