-- train.lua: train and infer.
local core, base, plan = ...
local fail = base.fail

local HUGE = math.huge
local MAX_STEPS = (1 << 31) - 1

-- --------------------------------------------------------------------------- the model and a batch

local function need(options, who, key, kind)
  if options[key] == nil then fail("%s needs %s", who, key) end
  return base.expect(options[key], kind, who .. "'s " .. key)
end

local function optional(options, who, key, kind)
  if options[key] == nil then return nil end
  return base.expect(options[key], kind, who .. "'s " .. key)
end

-- All inputs of tokens start at one place of the data; the next step continues after it.
local function check_tokens(name, d, first)
  if d.init ~= "tokens" then return first end
  local n = base.elements(d.shape)
  if first and first.n ~= n then
    fail("the batch's %s is of %d tokens, and its %s of %d: they are read together", first.name,
      first.n, name, n)
  end
  return first or {name = name, n = n}
end

-- By tensor of tokens: {eos =, ends =, longest =}: the token that ends a document, or a tensor that is 1 there; and the most
-- tokens of one.
local packed = setmetatable({}, {__mode = "k"})

function base.documents_in(tensor) return packed[tensor] or {} end

local IGNORED = -100 -- what cross_entropy and nll_loss leave out

-- A token that follows the end of a document is not a target: it belongs to the next document.
local function within_documents(batch, tensors)
  for name, description in pairs(batch) do
    local d = base.described(description)
    if d.eos then packed[tensors[name]] = {eos = d.eos, longest = d.longest} end
  end
  local targets = {}
  for name, description in pairs(batch) do
    local d = base.described(description)
    if d.eos and d.b > 0 then targets[name] = d end
  end
  for name, d in pairs(targets) do
    local before
    for other, description in pairs(batch) do
      local e = base.described(description)
      if e.init == "tokens" and e.b == d.b - 1 and base.same_shape(e.shape, d.shape) then before = other end
    end
    if not before then
      fail("the batch's %s is of documents, shifted by %d: it needs tokens shifted by %d of the same shape, "
        .. "to know where a document ends", name, d.b // 1 | 0, d.b // 1 - 1 | 0)
    end
    targets[name] = base.raw.where(base.raw.eq(tensors[before], d.eos), IGNORED, tensors[name])
  end
  for name, target in pairs(targets) do tensors[name] = target end
end

-- Documents whose ends another input gives.
local function note_ends(batch, tensors)
  for name, description in pairs(batch) do
    local d = base.described(description)
    if d.ends then
      local ends = batch[d.ends] and base.described(batch[d.ends])
      if not ends or not base.same_shape(ends.shape, d.shape) or ends.init ~= "uniform" or ends.type == "float32" then
        fail("the batch's %s: its documents end where the input '%.80s' is 1, and the batch has no such input of whole numbers, of "
          .. "shape %s", name, d.ends, base.shape_text(d.shape))
      end
      packed[tensors[name]] = {eos = 1, ends = tensors[d.ends], longest = d.longest}
    end
  end
end

-- The number of samples of the batch: the length of its inputs, which micro-batches cut.
local function samples_of(batch)
  local first, named
  for name, description in pairs(batch) do
    local d = base.described(description)
    local n = d and d.shape[1]
    if n and first and n ~= first then
      fail("microbatches cut the first dimension of the batch's inputs: %s has %d, and %s has %d", named,
        first, name, n)
    end
    first, named = n or first, n and name or named
  end
  return first or fail("microbatches cut the first dimension of the batch's inputs, and there is none")
end

-- An input that each step draws: it has the placement that distribute gives it.
local function take_fresh(name, d)
  if base.is_reordered(d.shape, d.placed) then
    fail("the batch's %s: what is drawn anew cannot be in the order of a balanced context; draw it within forward", name)
  end
  return base.drawn_input(d, function(x)
    return core.redistribute(x, base.placed_in_graph(d.placed), nil, nil, "distribute: '" .. name .. "'")
  end)
end

-- The inputs of a step as tensors, by name. microbatches: each takes its samples of them.
local function take_batch(batch, who)
  local tensors, tokens = {}, nil
  if base.time then samples_of(batch) end
  for name, description in pairs(batch) do
    base.expect(name, "string", "a name in " .. who .. "'s batch")
    if base.kind(description) ~= "description" then
      fail("the batch's %s must say a shape and how to fill it, such as randn{20, 10}; it is %s",
        name, base.a(description))
    end
    local d = base.described(description)
    tokens = check_tokens(name, d, tokens)
    if d.fresh then
      tensors[name] = take_fresh(name, d)
    else
      local reorders = base.is_reordered(d.shape, d.placed)
      tensors[name] = core.add_batch(name, d.shape, d.init, d.a, d.b,
        base.placed_in_graph(reorders and base.without_context(d.placed) or d.placed), d.line, d.type)
    end
    if base.time and #d.shape > 0 then
      tensors[name] = core.redistribute(tensors[name], {[base.time] = base.shard(0)}, nil, nil,
        "the samples of a micro-batch")
    end
  end
  within_documents(batch, tensors)
  for name, description in pairs(batch) do
    local d = base.described(description)
    if not d.fresh and base.is_reordered(d.shape, d.placed) then
      local documents = packed[tensors[name]]
      tensors[name] = base.in_order(tensors[name], base.context_of(d.placed))
      packed[tensors[name]] = documents
    end
  end
  note_ends(batch, tensors)
  for name, description in pairs(batch) do
    local d = base.described(description)
    base.tell_of_order(name, d.shape, d.placed)
  end
  return core.forbid_absent(tensors, "the batch")
end

-- The planner of redistributions: the fastest way, or step by step as in DTensor.
local function is_greedy(options, who)
  local planner = options.planner
  if planner ~= nil and planner ~= "greedy" and planner ~= "fastest" then
    fail('%s\'s planner is "fastest" or "greedy", not %s', who, base.a(planner))
  end
  return planner == "greedy"
end

local BUCKETINGS = {units = 0, greedy = 1, none = 2}
local MAX_CAPS, MAX_CAP_MB = 16, 1 << 20

-- bucketing = "units", "greedy" or "none"; bucket_mb = 25, or {1, 5, 25}: the most MiB of the first
-- bucket of a kind, of the second, of all later ones.
local function take_buckets(options, who)
  local way, caps = options.bucketing, options.bucket_mb
  if way == nil then way = "units" end
  if base.kind(way) ~= "string" or not BUCKETINGS[way] then
    fail('%s\'s bucketing is "units", "greedy" or "none", not %s', who, base.a(way))
  end
  if way == "none" and caps ~= nil then
    fail('%s: bucketing = "none" makes no buckets, and bucket_mb says how large they are: leave one '
      .. "out", who)
  end
  if base.kind(caps) == "number" then caps = {caps} end
  caps = caps == nil and {} or caps
  if base.kind(caps) ~= "table" then
    fail("%s's bucket_mb is a number or a list of numbers, not %s", who, base.a(caps))
  end
  base.length(caps, who .. "'s bucket_mb")
  if options.bucket_mb ~= nil and (#caps < 1 or #caps > MAX_CAPS) then
    fail("%s's bucket_mb is a number, or a list of 1 to %d: of the first bucket, the second, ..., all "
      .. "that follow; this has %d", who, MAX_CAPS, #caps)
  end
  local bytes = {}
  for i = 1, #caps do
    local mb = base.number(caps[i], who .. "'s bucket_mb", 0, HUGE)
    if mb * (1 << 20) < 1 or mb > MAX_CAP_MB then
      fail("%s's bucket_mb is in MiB, more than 0 and at most %d, not %g", who, MAX_CAP_MB, mb)
    end
    bytes[i] = math.floor(mb * (1 << 20))
  end
  core.set_buckets(BUCKETINGS[way], bytes)
end

-- prefetch = 0 to 4: how many modules ahead the modules of a list gather their parameters: with 1
-- while the module before runs. Default: 1 if it pays and fits. Without overlap = true programs for
-- the CPU gather nothing ahead.
local function take_prefetch(options, who)
  local modules = options.prefetch
  if modules ~= nil then base.integer(modules, who .. "'s prefetch, in modules,", 0, 4) end
  core.set_prefetch(modules and math.tointeger(modules) or -1)
  core.set_overlap(optional(options, who, "overlap", "boolean") or false)
end

-- checkpoint = {memory = "80GiB"}: its bytes; memory = true: -1, for those of the mesh or its device.
local function memory_of_checkpoint(checkpoint)
  local memory = base.options(checkpoint, "train's checkpoint", {"memory"}).memory
  if memory == true then return -1 end
  if memory == nil then fail('train\'s checkpoint is {memory = "80GiB"}, or {memory = true} for that of a rank') end
  return base.memory(memory)
end

-- Whether each module of a list is recomputed from its inputs before its backward, and whether products are kept; within
-- how many bytes the program is to fit, 0 for any.
local function has_checkpoints(options)
  local checkpoint = options.checkpoint
  if type(checkpoint) == "table" then return false, false, memory_of_checkpoint(checkpoint) end
  if checkpoint ~= nil and checkpoint ~= "layer" and checkpoint ~= "selective" then
    fail('train\'s checkpoint is "layer", "selective" or {memory = "80GiB"}, or it is left out; it is not %s',
      base.a(checkpoint))
  end
  return checkpoint ~= nil, checkpoint == "selective", 0
end

local COLLECTIVES = core.collectives()

-- expect = {all_gather = 10}: the most collectives of a step; of a kind not named, none.
local function take_expectation(options, who)
  if options.expect == nil then return end
  local most = base.options(options.expect, who .. "'s expect", COLLECTIVES)
  for kind, n in pairs(most) do
    base.integer(n, who .. "'s expect: the number of " .. kind, 0, MAX_STEPS)
  end
  core.set_expected(most)
end

local function model_of_input(model, batch)
  return model(batch.input)
end

-- The result of a plan's function, which must be one: Lua would drop the others.
function base.one(what, ...)
  local n = select("#", ...)
  if n > 1 then
    fail("%s gives %d results, and one is taken: give a table of them, or only the first, as in "
      .. "return (x:max(1))", what, n)
  end
  return (...)
end

-- The number of micro-batches of a step, and whether it is a pipeline's.
local function microbatches_of(options, who)
  local own, of_pipeline = options.microbatches, base.microbatches_of_pipeline()
  own = own and base.integer(own, who .. "'s microbatches", 1, 4096)
  if not of_pipeline then return own or 1 end
  if who ~= "train" then fail("pipeline is for programs that train so far, and this is %s", who) end
  if own and own ~= of_pipeline then
    fail("train's microbatches = %d, and the pipeline has %d: leave out train's", own, of_pipeline)
  end
  return of_pipeline, true
end

-- Begins a program: the model, and its inputs as tensors.
function base.begin_program(who, options, steps, batch)
  if base.begun then
    fail("%s: line %d has said what the program is for, and a plan makes one program", who,
      base.begun)
  end
  base.begun = core.line()
  base.of_training = who == "train"
  base.training = base.of_training
  local model = need(options, who, "model", "module")
  local seed = base.integer(options.seed or 0, who .. "'s seed", 0, math.maxinteger)
  local greedy, tf32 = is_greedy(options, who), base.is_tf32(options, who)
  take_expectation(options, who)
  take_buckets(options, who)
  take_prefetch(options, who)
  base.need_mesh()
  base.split_mesh()
  local microbatches = microbatches_of(options, who)
  if microbatches > 1 then base.add_microbatches(microbatches, batch) end
  base.part_adapters()
  base.take_up(model)
  base.set_names(who, options.names)
  base.describe_adapters(model)
  base.lower_styles()
  base.lower_pipeline()
  base.check_policies()
  base.check_units()
  core.begin(steps, seed, greedy)
  core.set_tf32(tf32)
  return model, take_batch(batch, who)
end

local function begin(who, options, steps)
  local model, batch = base.begin_program(who, options, steps, need(options, who, "batch", "table"))
  base.store_frozen_weights()
  return model, batch
end

-- -------------------------------------------------------------------------------- the two programs

-- Further parts of an update: clipping by value, the moving average of the weights.
local function ways_of_update(options)
  local way = {}
  if options.clip_value ~= nil then
    way.clip_value = base.number(options.clip_value, "train's clip_value", 0, HUGE)
    if way.clip_value == 0 then fail("train's clip_value must be more than 0") end
    if options.clip ~= nil then
      fail("train: clip bounds the norm of all gradients, clip_value each element: leave one out")
    end
  end
  if options.ema ~= nil then way.ema = base.number(options.ema, "train's ema", 0, 1) end
  return way
end

local function with_rate(way, made, schedule, steps, who)
  local whole = base.rate_of(schedule, made.settings.lr, steps, who)
  for key, value in pairs(way) do whole[key] = value end
  return whole
end

-- groups = {{match = a pattern, optimizer =, schedule =, the optimizer's settings}, ...}
local function group_of(group, i, made)
  local who = string.format("train's groups[%d]", i)
  base.expect(group, "table", who)
  base.expect(group.match, "string", who .. ".match")
  local settings = {}
  for key, value in pairs(group) do
    if key ~= "match" and key ~= "optimizer" and key ~= "schedule" then settings[key] = value end
  end
  if group.optimizer == nil then return base.optimizer_with(made, settings) end
  local own = base.optimizer_made(base.expect(group.optimizer, "optimizer", who .. ".optimizer"))
  return base.optimizer_with(own, settings)
end

-- The optimizers of a group's parameters: one, or where the update looks at shapes one for each shape.
local function add_traced(list, made, way, which)
  local shapes, names = core.shapes_of(which, made.definition.by_part)
  base.update_of = names[1] or "none"
  local first, by_shape = base.traced_optimizer(made, way, shapes[1] or {1, 1})
  list[which + 1] = first
  if not by_shape then return end
  for i = 2, #shapes do
    base.update_of = names[i]
    local traced = base.traced_optimizer(made, way, shapes[i])
    list.others[#list.others + 1] = {from = which, shape = shapes[i], traced = traced,
      by_part = made.definition.by_part}
  end
end

-- A hint for a pattern that matches nothing, if its stars should have matched dots, too.
local function with_dots(pattern)
  local deep = string.gsub(pattern, "%*+", "**")
  if deep == pattern or core.fitting(deep) == 0 then return "" end
  return string.format(": * matches no dot; say '%s'", deep)
end

-- Tells of the alternatives of a group's pattern that fit nothing.
local function look_at_alternatives(who, pattern)
  if not string.find(pattern, "|", 1, true) then return end
  for one in string.gmatch(pattern, "[^|]+") do
    if core.fitting(one) == 0 then
      core.note(string.format("%s: no parameter is called '%s'%s", who, one, with_dots(one)))
    end
  end
end

local function take_optimizers(how, options, steps)
  local made, way = base.optimizer_made(how), ways_of_update(options)
  local all = {{made = made, way = with_rate(way, made, options.schedule, steps, "train's schedule")}}
  local groups = options.groups == nil and {} or base.expect(options.groups, "table", "train's groups")
  for i = 1, base.length(groups, "train's groups") do
    local group, own = groups[i], group_of(groups[i], i, made)
    local schedule, who = group.schedule, string.format("train's groups[%d].schedule", i)
    if schedule == nil then schedule = options.schedule end
    local whole = with_rate(way, own, schedule, steps, who)
    whole.match = group.match
    all[i + 1] = {made = own, way = whole}
    local fit, joined = core.join_group(i, group.match)
    if fit == 0 then
      fail("train's groups[%d]: no parameter is called '%s'%s", i, group.match, with_dots(group.match))
    end
    look_at_alternatives(string.format("train's groups[%d]", i), group.match)
    if joined == 0 then
      fail("train's groups[%d]: groups before it have all parameters called '%s'", i, group.match)
    end
  end
  local list = {others = {}}
  for i, one in ipairs(all) do add_traced(list, one.made, one.way, i - 1) end
  for _, other in ipairs(list.others) do
    core.move_to(other.from, other.shape, #list, other.by_part)
    list[#list + 1] = other.traced
  end
  core.set_optimizers(list)
end

-- The options of gradients: set_training's table.
local function training(options, steps)
  local t = {}
  t.clip = base.number(options.clip or 0, "train's clip", 0, HUGE)
  if options.clip and t.clip == 0 then fail("train's clip must be more than 0") end
  local asked = base.boolean(options.grad_norm or false, "train's grad_norm")
  t.norm = (asked or t.clip > 0) and 1 or 0
  local order = options.norm_type
  if order ~= nil and order ~= 2 and order ~= HUGE and order ~= "inf" then
    fail('train\'s norm_type is 2, or "inf" for the largest element, not %s', tostring(order))
  end
  if order ~= nil and t.norm == 0 then fail("train's norm_type goes with clip or grad_norm") end
  t.of_largest = (order == HUGE or order == "inf") and 1 or 0
  t.accumulate = base.integer(options.accumulate or 1, "train's accumulate", 1,
    math.min(4096, MAX_STEPS // steps))
  local microbatches = microbatches_of(options, "train")
  local each = options.reduce_each_batch
  if each ~= nil then each = base.boolean(each, "train's reduce_each_batch") end
  if each and t.accumulate == 1 and microbatches == 1 then
    fail("train's reduce_each_batch is for steps of several batches: say accumulate = 2, or more")
  end
  t.reduce_each = each and 1 or each == false and -1 or 0
  return t
end

-- accumulate_mean = "labels": a mean over labels goes over those of all batches of a step; "batches": the mean of
-- the batches' means.
local function is_mean_over_labels(options)
  local mean = options.accumulate_mean
  if mean ~= nil and mean ~= "labels" and mean ~= "batches" then
    fail('train\'s accumulate_mean is "labels" or "batches", not %s', base.a(mean))
  end
  return mean ~= "batches"
end

-- shuffle = a seed, or true: by the seed of train; drop_last = true or false: whether a data set's
-- last samples are dropped if they do not fill a batch.
local function take_data(options, seed)
  local shuffle, last = options.shuffle, options.drop_last
  if shuffle == true then shuffle = seed end
  if shuffle == false then shuffle = nil end
  if shuffle ~= nil then
    shuffle = base.integer(shuffle, "train's shuffle, a seed,", 0, math.maxinteger)
  end
  if last ~= nil then base.boolean(last, "train's drop_last") end
  core.set_data{shuffle = shuffle, last = last == nil and 0 or last and 2 or 1}
end

local JOININGS = {mean = "BY_MEAN", mean_of_samples = "BY_SAMPLES", sum = "BY_SUM", max = "BY_MAX", min = "BY_MIN"}

-- How validations join each metric's batches: as {accuracy = "mean"} says, or {"accuracy"}; else the mean of all.
local function take_validated(said, metrics)
  local who, joining, names = "train's validate.metrics", {}, {}
  if said ~= nil then
    for key, value in pairs(base.expect(said, "table", who)) do
      local name, how = key, value
      if math.type(key) == "integer" then name, how = value, "mean" end
      base.expect(name, "string", "a name in " .. who)
      if not JOININGS[base.expect(how, "string", who .. "." .. name)] then
        fail('%s.%.80s is "mean", "mean_of_samples", "sum", "max" or "min", not "%.80s"', who, name, how)
      end
      if not metrics[name] then fail("%s: train's metrics have no '%.80s'", who, name) end
      joining[name] = how
    end
  else
    for name in pairs(metrics) do joining[name] = "mean" end
  end
  for name in pairs(joining) do names[#names + 1] = name end
  if #names == 0 then return end
  table.sort(names)
  for i, name in ipairs(names) do names[i] = name .. " " .. JOININGS[joining[name]] end
  core.set_validated(table.concat(names, "\n"), said ~= nil)
end

-- validate = {data = a file, every = steps, steps = batches, metrics = which}: all may be left out.
local function take_validation(options)
  if options.validate == nil then return end
  local who = "train's validate"
  local v = base.options(options.validate, who, {"data", "every", "steps", "metrics"})
  if v.data ~= nil then base.expect(v.data, "string", who .. "'s data") end
  core.set_validation(v.data, base.integer(v.every or 0, who .. "'s every", 0, MAX_STEPS),
    base.integer(v.steps or 0, who .. "'s steps", 0, MAX_STEPS))
end

local REPORTED = {step = true, loss = true, grad_norm = true, seconds = true, tps = true,
  tokens_per_second = true, tflops = true, mfu = true, memory = true, lr = true}

-- metrics = function(output, batch) return {name = a tensor, ...}: numbers of each step beside the loss.
-- Returns the set of their names.
local function take_metrics(metrics, output, batch)
  if metrics == nil then return {} end
  local all = base.expect(base.one("metrics", metrics(output, batch)), "table", "what train's metrics gives")
  local names = {}
  for name in pairs(all) do
    base.expect(name, "string", "the name of a metric")
    if not string.find(name, "^%a[%w_]*$") or REPORTED[name] then
      fail("train's metrics: '%.80s' cannot be a metric's name: these are letters, digits and _, and not those of "
        .. "numbers that all programs report", name)
    end
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local tensor = base.expect(all[name], "tensor", "the metric '" .. name .. "'")
    core.set_output(name, base.raw.detach(base.raw.to(tensor, "float32")))
  end
  return all
end

-- emit = "library": a library in addition to the program, called library_name.
local function take_library(options, who)
  local emit, name = options.emit, options.library_name
  if emit ~= nil and base.expect(emit, "string", who .. "'s emit") ~= "program" and emit ~= "library" then
    fail("%s's emit is \"program\" or \"library\", not \"%s\"", who, emit)
  end
  if name ~= nil then base.expect(name, "string", who .. "'s library_name") end
  core.set_library(emit == "library", name)
end

--- # Programs
--- train(options): a program whose steps reduce the loss.
---   model: the module
---   batch: a table of inputs: `randn{...}`, `tokens(words){...}`
---   loss: `function(output, batch)`: a number to reduce
---   optimizer: `AdamW{...}` or another one
---   steps: how many
---   seed = 0: of initial weights, inputs that are drawn and dropout
---   forward: `function(model, batch)`; by default `model(batch.input)`
---   planner = "fastest": or `"greedy"`, DTensor's steps for moves
---   checkpoint: `"layer"`: the backward of each module of a list keeps only the module's inputs; `"selective"`: and the
---     results of products, attention and sums over ranks; `{memory = "80GiB"}`: all that fits in a rank's memory,
---     `true`: in that of `device_mesh`
---   names: what other files call the parameters: patterns with as many stars; `{tensor =, dim =, part =, of =}` is a
---     part of one
---   schedule: of the learning rate, or a function of the step that gives a factor
---   clip: the gradients are scaled so that the norm of them all is at most this
---   norm_type = 2: `"inf"`: that norm is the largest element
---   grad_norm = false: the metrics show the norm without clipping
---   accumulate = 1: batches of a step, whose gradients are added up and reduced once
---   reduce_each_batch: gradients that end up cut are reduced after each batch: less memory, more collectives; false: their
---     sum is reduced; by default each batch's, unless the memory is known, whole sums fit and the step is quicker
---   expect: the most collectives of a step by kind, `{all_reduce = 1}`; more are an error
---   matmul_precision = "float32": `"tf32"`: products of float32 may round their operands
---   bucketing: `"units"`, `"greedy"` or `"none"`: which collectives are joined
---   bucket_mb: the most MiB of a bucket, or a list: of the first, the second, ..., all others
---   prefetch: 0 to 4: how many layers ahead parameters are gathered; by default 1 if that pays and fits
---   overlap = false: true: collectives run beside arithmetic on the CPU, too, by MPI's calls that do not wait: for ranks on
---     several machines; on GPUs they always do
---   shuffle: a seed, or true: each epoch of a data set has an order of its own
---   drop_last: true: a last batch that is not whole is left out; false: it is smaller
---   validate: `{data =, every =, steps =}`: the loss of other data, every so many steps
---   groups: `{{match = pattern, lr =, schedule =, optimizer =, ...}, ...}`: parameters with settings of their own
---   clip_value: bounds each element of a gradient
---   ema: a moving average of the weights; each step keeps this part of it
---   emit = "program": `"library"`: functions for C and Fortran, too
---   library_name = "model": of the library
---   microbatches = 1: a step goes through its batch in so many parts
---   metrics: `function(output, batch)`: a table of numbers for the metrics of a step
---   export: patterns of the parameters that `--export` writes, parted by `|`, in which `*` is any text: `"student.*"`;
---     by default all
---   accumulate_mean = "labels": `"batches"`: a loss is the mean of the batches' means
---   parallel: `auto{cluster = "dgx-h100:8"}`: tpgen finds the mesh and what is cut over it; or a table of the same options that
---     says all of it, as the plan.lua that it leaves has one
local OPTIONS = base.option_names("train",
    {"model", "batch", "loss", "optimizer", "steps", "seed", "forward", "planner",
     "checkpoint", "names", "schedule", "clip", "norm_type", "grad_norm", "accumulate",
     "reduce_each_batch", "expect", "matmul_precision",
     "bucketing", "bucket_mb", "prefetch", "overlap", "shuffle", "drop_last", "validate", "groups",
     "clip_value", "ema", "emit", "library_name", "microbatches", "metrics", "accumulate_mean", "parallel",
     "export"})

function plan.train(options)
  base.expect(options, "table", "what train is given")
  base.options(options, "train", OPTIONS)
  options = base.with_parallel(options)
  local loss = need(options, "train", "loss", "function")
  local how = need(options, "train", "optimizer", "optimizer")
  if options.steps == nil then fail("train needs steps") end
  local steps = base.integer(options.steps, "train's steps", 1, MAX_STEPS)
  local forward = optional(options, "train", "forward", "function") or model_of_input
  local metrics = optional(options, "train", "metrics", "function")
  local checkpoint, selective, within = has_checkpoints(options)
  local how_trained = training(options, steps)
  base.batches_of_mean = is_mean_over_labels(options) and how_trained.accumulate or 1

  local model, batch = begin("train", options, steps)
  take_data(options, options.seed or 0)
  local output = base.one("forward", forward(model, batch))
  base.counted = nil
  local result = base.one("the loss", loss(output, batch))
  base.check_adapters()
  base.check_parallel()
  core.set_loss(base.expect(result, "tensor", "what the loss gives"))
  if base.counted then core.set_output(core.labels_output(), base.raw.detach(base.counted)) end
  local measured = take_metrics(metrics, output, batch)
  take_optimizers(how, options, steps)
  core.set_checkpoint(checkpoint, selective, within)
  core.set_training(how_trained)
  take_validation(options)
  take_validated(options.validate and options.validate.metrics, measured)
  take_library(options, "train")
  local exports = optional(options, "train", "export", "string")
  if exports and (#exports > 1000 or not core.set_exports(exports)) then
    fail("train's export: no parameter has a name that fits '%.80s'", exports)
  end
  core.end_()
end

--- infer(options): a program of one forward, which writes its outputs.
---   model: the module
---   batch: a table of inputs
---   outputs: `function(model, batch)`: a table of tensors by name; by default `output`, of `batch.input`
---   seed = 0: of weights and inputs that are drawn
---   planner = "fastest": see `train`
---   names: see `train`
---   expect: see `train`
---   matmul_precision = "float32": see `train`
---   bucketing: see `train`
---   bucket_mb: see `train`
---   prefetch: see `train`
---   overlap = false: see `train`
---   emit = "program": see `train`
---   library_name = "model": see `train`
local INFER_OPTIONS = base.option_names("infer", {"model", "batch", "outputs", "seed", "planner", "names", "expect",
  "matmul_precision", "bucketing", "bucket_mb", "prefetch", "overlap", "emit", "library_name"})

function plan.infer(options)
  base.expect(options, "table", "what infer is given")
  base.options(options, "infer", INFER_OPTIONS)
  local outputs = optional(options, "infer", "outputs", "function")
    or function(model, batch) return {output = base.one("forward", model(batch.input))} end

  local model, batch = begin("infer", options, 1)
  local result = base.one("outputs", outputs(model, batch))
  base.check_adapters()
  base.expect(result, "table", "what infer's outputs give")
  local n = 0
  for name, tensor in pairs(result) do
    base.expect(name, "string", "the name of an output")
    core.set_output(name, base.expect(tensor, "tensor", "the output '" .. name .. "'"))
    n = n + 1
  end
  if n == 0 then fail("infer's outputs give no tensor: there is nothing to compute") end
  take_library(options, "infer")
  core.end_()
end
