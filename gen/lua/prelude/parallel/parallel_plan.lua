-- parallel_plan.lua: train's `parallel`: the mesh, and everything that is cut over it, from a table, or from auto{...} and
-- the values that a search (driver/parallel_plan.c) gives what auto{...} does not say.
local core, base, plan = ...
local fail = base.fail
local device_mesh, distribute, parallelize = plan.device_mesh, plan.distribute, plan.parallelize
local fully_shard, replicate, pipeline, context_parallel = plan.fully_shard, plan.replicate, plan.pipeline, plan.context_parallel
local WHO = "train's parallel"

local ROWS = {
  title = WHO,
  {"dp_replicate", 1, "copies of the parameters, for parts of the batch", search = "copies"},
  {"dp_shard", 1, "ranks that share the batch, over which parameters, gradients and the optimizer's state are cut",
    search = "shards"},
  {"tp", 1, "ranks that share each layer", search = "tensor"},
  {"pp", 1, "stages of a pipeline, each on ranks of its own", search = "stages"},
  {"cp", 1, "ranks that share each sequence", search = "sequences"},
  {"ep", 1, "ranks of dp_shard that share the experts of each nn.MoE",
    search = {kind = "experts", without = {"dp_replicate", "cp"}}},
  {"context", "ring", "how attention gets the keys of other ranks of cp", choices = {"ring", "allgather", "ulysses"},
    search = {"allgather", "ulysses", with = "cp"}},
  {"balance", nil, "headtail: each rank of cp has as much of a causal attention to do", choices = {"headtail"},
    search = {"headtail", with = "cp"}},
  {"reshard_after_forward", "default", "whether gathered parameters are given up after the forward", choices = {"default",
    "always", "never"}, search = {"always", "never", with = {"dp_shard", "cp"}, without = "zero"}},
  {"zero", 0, "1 cuts the optimizer's state over dp_replicate, 2 the gradients too", choices = {0, 1, 2},
    search = {kind = "zero", 1, 2, with = {"dp_replicate", "cp"}, without = {"dp_shard", "reshard_after_forward"}}},
  {"schedule", "1f1b", "of pp: a schedule's name (tpgen --schedule)", type = "text",
    search = {kind = "schedule", "interleaved_1f1b", "looped_bfs", "interleaved_zero_bubble", "zbv_zero_bubble", "dualpipe_v",
      with = "pp"}},
  {"stages", nil, "of pp: stages of each rank; by default the schedule's least", type = "size",
    search = {kind = "stages_of_rank", 2, 3, 4, 5, 8, with = "pp"}},
  {"microbatches", nil, "equal parts in which a step goes through its batch; by default 1, with pp as many as ranks",
    type = "size", search = "microbatches"},
  {"checkpoint", nil, "what the backward makes again, as train's", choices = {"layer", "selective", "memory"},
    search = {kind = "recompute", "selective", "layer", "memory"}},
  {"bucketing", nil, "which collectives are joined, as train's", choices = {"units", "greedy", "none"}, search = {"greedy"}},
  {"prefetch", nil, "how many layers ahead parameters are gathered, as train's", choices = {0, 1, 2, 3, 4},
    search = {0, with = {"dp_shard", "cp"}, without = "zero"}},
  {"async_tp", nil, "what tp gathers and reduces travels in pieces, beside the products", type = "size", choices = {true, false},
    search = {true, with = "tp"}},
}
local rows = {}
base.read_setting_rows(ROWS, rows)

-- What is no number and no choice, and is not varied.
local FURTHER = {"cluster", "memory", "styles", "units", "split"}
base.parallel_keys = {}
base.parallel_names = {}
for i, row in ipairs(rows) do base.parallel_keys[i], base.parallel_names[i] = row.name, row.name end
table.move(FURTHER, 1, #FURTHER, #base.parallel_keys + 1, base.parallel_keys)

-- ------------------------------------------------------------------------------- the model's parts

local function is_list(module)
  local class = base.class(module)
  return class == base.ModuleList or class == base.Sequential
end

local function has_list(module)
  local children = base.children(module)
  for i = 2, #children, 2 do
    if is_list(children[i]) or has_list(children[i]) then return true end
  end
  return false
end

local function joined(path, name) return path == "" and name or path .. "." .. name end

-- Calls before(module, path, in_list), or after, for the blocks of the model, in their order: members of lists, and modules
-- beside lists. A block with more parameters than `most` has blocks of its own, between the two calls.
local function each_block(module, path, in_list, most, before, after)
  local children = base.children(module)
  for i = 1, #children, 2 do
    local child, at = children[i + 1], joined(path, children[i])
    local is_divided = is_list(child) or (core.elements_of(child) > most and has_list(child))
    local is_block = not is_list(child) and (in_list or not is_divided)
    if is_block and before then before(child, at, in_list) end
    if is_divided then each_block(child, at, is_list(child), most, before, after) end
    if is_block and after then after(child, at, in_list) end
  end
end

local LARGE, SMALL = 2, 64 -- parts of a model's parameters

-- The modules that are units of fully_shard: {module =, path =, in_list =}. Small modules go to the last unit, the model's.
local function units_of(model)
  local all, list = core.elements_of(model), {}
  each_block(model, "", false, all / LARGE, nil, function(module, path, in_list)
    local n = core.elements_of(module)
    if n > 0 and (in_list or n * SMALL >= all) then list[#list + 1] = {module = module, path = path, in_list = in_list} end
  end)
  return list
end

-- The units that the plan names by patterns; those of members of lists are known by their numbers.
local function units_named(model, patterns)
  local list, what = {}, WHO .. "'s units"
  base.expect(patterns, "table", what)
  for i = 1, base.length(patterns, what) do
    local pattern = base.expect(patterns[i], "string", what)
    local found = core.matching({model}, pattern)
    if #found == 0 then base.nothing_matches(pattern, model) end
    local in_list = string.find("." .. pattern, "%.[%d*]+$") ~= nil
    for _, module in ipairs(found) do list[#list + 1] = {module = module, path = pattern, in_list = in_list} end
  end
  return list
end

-- The patterns of units, as a plan would name them.
local function patterns_of(units)
  local list, seen = {}, {}
  for _, unit in ipairs(units) do
    local pattern = unit.in_list and unit.path:gsub("%d+$", "*") or unit.path
    if not seen[pattern] then list[#list + 1] = pattern end
    seen[pattern] = true
  end
  return list
end

local function experts_of(module, list)
  local children = base.children(module)
  for i = 2, #children, 2 do
    if base.class(children[i]) == base.Experts then list[#list + 1] = children[i] end
    experts_of(children[i], list)
  end
  return list
end

-- The modules with which a stage of a pipeline may begin: blocks, in their order.
function base.blocks_of(model)
  local list = {}
  each_block(model, "", false, core.elements_of(model) / LARGE, function(module)
    if core.elements_of(module) > 0 then list[#list + 1] = module end
  end)
  return list
end

-- -------------------------------------------------------------------------------------- the batch

-- The number of samples: the first size of `input`, or of the first input that has one.
local function samples_of(batch)
  local first
  for _, description in pairs(batch) do
    local d = base.described(description)
    first = first or d and d.shape[1]
  end
  local input = base.described(rawget(batch, "input"))
  return input and input.shape[1] or first or fail("%s cuts the first dimension of the batch's inputs, and there is none", WHO)
end

-- Whether the input is tokens [batch, sequence], or vectors [batch, sequence, width].
local function is_sequence(d) return #d.shape == 3 or (#d.shape == 2 and d.type ~= "float32" and d.type ~= "bfloat16") end

local function tokens_of(batch)
  for _, description in pairs(batch) do
    local d = base.described(description)
    if d and is_sequence(d) then return d.shape[2] end
  end
  fail("cp cuts sequences: the batch has no input [batch, sequence] of whole numbers, and none [batch, sequence, width]")
end

-- ------------------------------------------------------------------------------------ what is asked

local given_by = {} -- by what auto() gave: its options
local pinned        -- what pin_parallel was given

function base.note_auto(a, options) given_by[a] = options end

--- # Automatic placements
--- pin_parallel(options): before all else in a plan: the options of train's `parallel`, or `auto{...}`; they come before
--- train's own, and its `styles` stay beside them. tpgen writes one into the plan.lua that it leaves where it has found them.
function plan.pin_parallel(options)
  if pinned or base.begun then fail("pin_parallel comes once, before train") end
  pinned = options
end

-- Adds to `all` the options of train's parallel, or of pin's: all.value of rows by name, all.is_stated, and what is no row.
local function add_options(all, p, who)
  local options = given_by[p]
  all.searches = options ~= nil
  if options and options.parameters ~= nil then
    fail("auto's parameters are a limit where auto() stands in parallelize: %s knows memory, of all that a rank holds", WHO)
  end
  if not options then options = base.options(base.expect(p, "table", who), who, base.parallel_keys) end
  for _, row in ipairs(rows) do
    local value = options[row.name]
    if value == false then value = row.default end
    if options[row.name] ~= nil then all.value[row.name], all.is_stated[row.name] = base.check_setting(row, value), true end
  end
  for _, name in ipairs(FURTHER) do
    if options[name] ~= nil and name ~= "styles" then all[name] = options[name] end
  end
  if options.styles ~= nil then
    all.styles[#all.styles + 1] = base.expect(options.styles, "table", who .. "'s styles")
    all.has_all_styles = not all.searches
  end
end

local OWN = {"checkpoint", "microbatches", "bucketing", "prefetch"} -- options of train's that are rows, too

-- All that train, pin and -D say; -D has the last word about what the plan does not declare itself.
local function read_options(train)
  local all, declared = {value = {}, is_stated = {}, by_definition = {}, styles = {}}, {}
  add_options(all, train.parallel, WHO)
  if pinned then add_options(all, pinned, "what pin_parallel is given") end
  for _, name in ipairs(base.setting_names or {}) do declared[name] = true end
  for _, row in ipairs(rows) do
    local value
    if not declared[row.name] then value = plan.args[row.name] end
    if value ~= nil then
      all.value[row.name], all.is_stated[row.name] = base.check_setting(row, value), true
      all.by_definition[row.name] = true
    end
  end
  for _, name in ipairs(OWN) do
    if train[name] ~= nil and all.is_stated[name] then fail("%s says %s, and so does train: leave one out", WHO, name) end
  end
  return all
end

-- What is stated about modules names some, and gives them styles: a candidate that cannot be made would hide that.
local function check_modules(all, model)
  for _, styles in ipairs(all.styles) do
    for key, style in pairs(styles) do
      local kind = base.kind(style)
      if key ~= 1 and type(key) == "string" then
        if #core.matching({model}, key) == 0 then base.nothing_matches(key, model) end
        if kind ~= "style" and kind ~= "automatic" and kind ~= "table" then
          fail("%s's styles: '%s' must get a style such as Colwise(), or a table of them, not %s", WHO, key, base.a(style))
        end
      end
    end
  end
  if type(all.split) ~= "table" then return end
  for _, path in ipairs(all.split) do
    if type(path) == "string" and #core.matching({model}, path) == 0 then base.nothing_matches(path, model) end
  end
end

-- Leaves what is not stated to a search; ends the process that reads the plan.
local function ask(all, train)
  for _, row in ipairs(rows) do
    local is_own = false
    for _, name in ipairs(OWN) do is_own = is_own or name == row.name and train[name] ~= nil end
    local value = all.value[row.name]
    if not is_own then base.list_setting(row, row.default) end
    if not is_own and all.is_stated[row.name] then
      core.pin_searched(value ~= nil and tostring(value) or nil, all.by_definition[row.name] == true)
    end
  end
  core.search_parallel(samples_of(train.batch), #base.blocks_of(train.model))
  core.end_of_settings()
end

-- ------------------------------------------------------------------------------------ what is made

-- The mesh, and the names of its dimensions that share the batch. Ranks of tp are neighbours in a node, those of pp the
-- farthest from each other.
local function make_mesh(v, all)
  local dims, data = {cluster = all.cluster, memory = all.memory}, {}
  local function add(name, n, of_data)
    dims[#dims + 1] = {name, n}
    if of_data then data[#data + 1] = name end
  end
  local function add_above_one(name, n, of_data)
    if n > 1 then add(name, n, of_data) end
  end
  add_above_one("pp", v.pp)
  add_above_one("dp_replicate", v.dp_replicate, true)
  if v.ep > 1 then
    add("efsdp", v.dp_shard // v.ep, true)
    add("ep", v.ep, true)
  else
    add_above_one("dp_shard", v.dp_shard, true)
  end
  add_above_one("cp", v.cp)
  add_above_one("tp", v.tp)
  if #dims == 0 then dims[1] = {"rank", 1} end
  return device_mesh(dims), data
end

local function part_of(mesh, names) return #names == 1 and mesh[names[1]] or mesh(names) end

local function cut_batch(v, mesh, data, batch)
  local samples, tokens, cuts = samples_of(batch), v.cp > 1 and tokens_of(batch), {}
  for i = 1, #data do cuts[i] = base.shard(0) end
  for _, description in pairs(batch) do
    local d = base.described(description)
    if d and #data > 0 and d.shape[1] == samples then distribute(description, part_of(mesh, data), cuts) end
    if d and tokens and is_sequence(d) and d.shape[2] == tokens then distribute(description, mesh.cp, base.shard(1)) end
  end
end

-- Over tp: what the plan states stays, and auto() finds the rest.
local function cut_layers(v, all, model, mesh)
  if v.tp == 1 then return end
  local options = {async_tp = v.async_tp}
  for _, styles in ipairs(all.styles) do
    local of_modules = {}
    for key, style in pairs(styles) do
      if key == 1 then parallelize(model, mesh.tp, style) else of_modules[key] = style end
    end
    parallelize(model, mesh.tp, of_modules, options)
  end
  if not all.has_all_styles then parallelize(model, mesh.tp, base.auto_of_tp(), options) end
end

-- Experts are cut over fewer ranks than the rest, so they are units of their own.
local function cut_experts(v, model, mesh)
  if v.ep == 1 then return end
  local list = experts_of(model, {})
  if #list == 0 then fail("ep cuts the experts of nn.MoE, and the model has none") end
  for _, experts in ipairs(list) do
    parallelize(experts, mesh.ep, plan.ExpertParallel())
    fully_shard(experts, mesh.efsdp)
  end
end

local function shard(v, all, model, mesh, data)
  local units = all.units and units_named(model, all.units) or units_of(model)
  core.note_units(patterns_of(units))
  if v.zero ~= 0 then
    if v.dp_shard > 1 then fail("zero = %d is for parameters that are whole, dp_shard = %d cuts them", v.zero, v.dp_shard) end
    local both = {table.unpack(data)}
    if v.cp > 1 then both[#both + 1] = "cp" end
    replicate(model, part_of(mesh, both), {zero = v.zero})
  elseif v.dp_shard > 1 or (v.cp > 1 and v.dp_replicate == 1) then
    local over = v.dp_shard == 1 and mesh.cp or v.ep > 1 and mesh.efsdp or part_of(mesh, data)
    local also = v.dp_shard > 1 and v.cp > 1 and mesh.cp or v.ep > 1 and mesh.ep or nil
    -- The backward of what comes last begins at once: by default that stays gathered. Beside the layers, embeddings come
    -- first, and the rest last.
    local inside = {reshard_after_forward = v.reshard_after_forward ~= "never", also = also}
    local at_once = {reshard_after_forward = v.reshard_after_forward == "always", also = also}
    for _, unit in ipairs(units) do
      local is_last = not unit.in_list and base.class(unit.module) ~= base.Embedding
      if core.taken(unit.module) == 0 then fully_shard(unit.module, over, is_last and at_once or inside) end
    end
    if core.taken(model) == 0 then fully_shard(model, over, at_once) end
  end
end

-- Called by train: cuts the model and the batch, and gives train's options with those that `parallel` makes.
function base.with_parallel(train)
  if train.parallel == nil then
    if base.setting_names then core.check_definitions(base.setting_names, base.earlier_names, {}) end
    if pinned then fail("pin_parallel is for train's parallel: write train{parallel = auto{}}") end
    return train
  end
  local model, batch = base.expect(train.model, "module", "train's model"), base.expect(train.batch, "table", "train's batch")
  if base.has_mesh() then fail("%s makes the mesh itself: leave out device_mesh", WHO) end
  core.look_anew()
  core.elements_of(model) -- which refuses modules within themselves
  local all = read_options(train)
  check_modules(all, model)
  local found = core.found_parallel()
  if all.searches and not found and not core.lists_settings() then ask(all, train) end
  local v = setmetatable({}, {__index = function(_, name)
    local value = (found or all.value)[name]
    if value == nil then value = rows[name].default end
    return value
  end})
  if v.ep > 1 and (v.dp_replicate > 1 or v.cp > 1 or v.dp_shard % v.ep ~= 0) then
    fail("ep = %d divides dp_shard, and is not taken together with dp_replicate or cp", v.ep)
  end
  local mesh, data = make_mesh(v, all)
  cut_batch(v, mesh, data, batch)
  cut_layers(v, all, model, mesh)
  cut_experts(v, model, mesh)
  if v.pp > 1 then
    pipeline(model, mesh.pp, {schedule = v.schedule, microbatches = v.microbatches or train.microbatches or v.pp,
      stages = v.stages and v.pp * v.stages, split = all.split})
  end
  if v.cp > 1 then context_parallel(model, mesh.cp, {method = v.context, balance = v.balance}) end
  shard(v, all, model, mesh, data)
  local options = {}
  for key, value in pairs(train) do options[key] = value end
  for _, name in ipairs(OWN) do
    if options[name] == nil then options[name] = v[name] end
  end
  if options.checkpoint == "memory" then options.checkpoint = {memory = all.memory or true} end
  if v.pp > 1 then options.microbatches = nil end
  base.must_cut_attention = v.cp > 1
  return options
end

-- Called after the forward.
function base.check_parallel()
  if base.must_cut_attention and not base.has_cut_attention() then
    fail("cp cuts sequences for F.scaled_dot_product_attention, and the model calls it nowhere")
  end
end
