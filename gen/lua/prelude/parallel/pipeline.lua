-- pipeline.lua: the stages of a pipeline.
local core, base, plan = ...
local fail = base.fail

local OPTIONS = base.option_names("pipeline", {"stages", "schedule", "microbatches", "split"})
local MOST_STAGES, MOST_MICROBATCHES = 4096, 4096

local asked -- what the plan's call says

-- The longest list of modules in the model: its layers.
local function layers_of(module, longest)
  local children = base.children(module)
  for i = 2, #children, 2 do
    local child = children[i]
    if base.class(child) == base.ModuleList then
      local n = #base.children(child) // 2
      if n > #longest // 2 then longest = base.children(child) end
    end
    longest = layers_of(child, longest)
  end
  return longest
end

-- The modules with which a stage may begin: graph_passes/balance.c chooses. Those of the longest list, or the blocks of
-- the model if they are more, and the list is too short.
local function may_begin(module, stages)
  local layers, list = layers_of(module, {}), {}
  for i = 2, #layers, 2 do list[#list + 1] = layers[i] end
  local blocks = #list < stages and base.blocks_of(module) or list
  if #blocks > #list then list = blocks end
  if #list < stages then
    fail("pipeline: %d stages of %d blocks, layers and what is beside them: a stage has one or more; say where they "
      .. 'begin, as in split = {"layers.2"}', stages, #list)
  end
  return table.move(list, 2, #list, 1, {})
end

local function as_split(module, split)
  base.expect(split, "table", "pipeline's split")
  local list = {}
  for i = 1, base.length(split, "pipeline's split") do
    local path = base.expect(split[i], "string", "pipeline's split")
    local found = core.matching({module}, path)
    if #found == 0 then base.nothing_matches(path, module) end
    if #found > 1 then fail("pipeline's split: '%s' names %d modules: a stage begins with one", path, #found) end
    list[i] = found[1]
  end
  return list
end

-- pipeline(model, mesh.pp, {schedule = "1f1b", microbatches = 8, stages = 4, split = {"layers.8", ...}}): parts
-- of the model, by depth, that the ranks along the dimension compute. schedule = "mine.csv": a file as PyTorch writes
-- it, which has the numbers of stages and micro-batches.
--- # Pipelines
--- pipeline(module, mesh, options): stages of the model, by depth, on the ranks along a dimension.
---   schedule = "1f1b": a name of `tpgen --schedule`, or a file of one, `"mine.csv"`
---   microbatches: the parts of a batch
---   stages: how many, of all ranks; by default as many as the schedule needs
---   split: the modules with which the stages after the first one begin; by default tpgen balances them
plan.pipeline = core.unwatched(function(module, mesh, options)
  base.expect(module, "module", "the first argument of pipeline")
  if base.begun then fail("pipeline comes before train") end
  if asked then fail("pipeline is called twice: line %d has cut the model in stages", asked.line) end
  local dim, ranks = base.one_dimension(mesh, "pipeline")
  options = base.options(options or {}, "pipeline", OPTIONS)
  local schedule = options.schedule or "1f1b"
  base.expect(schedule, "string", "pipeline's schedule")
  local csv, rows, in_file, parts = core.read_schedule(schedule)
  local function number(name, of_file, most)
    local given = options[name]
    if given ~= nil then base.integer(given, "pipeline's " .. name, 1, most) end
    if csv and given and given ~= of_file then
      fail("pipeline: %s = %d, and the schedule %s has %d", name, given, schedule, of_file)
    end
    return of_file or given
  end
  if csv and rows ~= ranks then
    fail("pipeline: the schedule %s has rows for %d ranks; there are %d", schedule, rows, ranks)
  end
  local microbatches = number("microbatches", parts, MOST_MICROBATCHES)
  if not microbatches then fail("pipeline needs microbatches: into how many parts a batch is cut") end
  local stages = number("stages", in_file, MOST_STAGES) or core.stages_implied(schedule) * ranks
  if not csv and stages % ranks ~= 0 then
    fail("pipeline: %d stages cannot be shared equally by %d ranks", stages, ranks)
  end
  local first = options.split and as_split(module, options.split) or may_begin(module, stages)
  if options.split and #first ~= stages - 1 then
    fail("pipeline's split names the module with which each stage after the first begins: for %d stages %d, not %d",
      stages, stages - 1, #first)
  end
  asked = {
    dim = dim, schedule = schedule, csv = csv, stages = stages, first = first, given = options.split ~= nil,
    line = core.line(), microbatches = microbatches,
  }
  return module
end)

-- The micro-batches of the pipeline, or nil.
function base.microbatches_of_pipeline() return asked and asked.microbatches end

-- Called when the graph has the model.
function base.lower_pipeline()
  if not asked then return end
  local indices = {}
  for i, module in ipairs(asked.first) do
    indices[i] = base.index(module) or fail("the pipeline of line %d begins a stage with a %s that is not part of "
      .. "the model", asked.line, base.class_name(module))
  end
  core.set_pipeline(base.dims_in_graph{asked.dim}[1], asked.schedule, asked.stages, asked.line, asked.csv, indices,
    asked.given)
end
