-- auto.lua: auto(), which leaves placements to tpgen (gen/auto).
local core, base, plan = ...
local fail = base.fail

-- Those of placements, and those of train's parallel, which parallel_plan.lua reads.
local OPTIONS = base.option_names("auto", {"memory", "parameters", "cluster", "styles", "units", "split", "dp_replicate",
  "dp_shard", "tp", "pp", "cp", "ep", "context", "balance", "reshard_after_forward", "zero", "schedule", "stages",
  "microbatches", "checkpoint", "bucketing", "prefetch", "async_tp"})
local OF_PLACEMENTS = {memory = true, parameters = true}

local limits_of = {} -- by what auto() gave: its limits in bytes, 0 for none
local asked = {}     -- {modules, dims, limits}

-- A number of bytes, or a text as "80GiB".
local function bytes_option(options, key)
  local given = options[key]
  if given == nil then return 0 end
  if type(given) == "string" then return base.memory(given) end
  return base.integer(given, "auto's " .. key .. ", in bytes,", 1, 1 << 60)
end

--- # Automatic placements
--- auto(options?): in the place of styles: tpgen finds the placements of the modules' parameters, inputs and outputs
--- itself: those with which a step takes least time or, where the mesh has no device, a rank receives the fewest
--- bytes. Also over `mesh`, of several dimensions. It prints them as the styles that one would write.
--- `train{parallel = auto{cluster = "dgx-h100:8"}}`: tpgen finds the mesh, too, and all that is cut over it; each
--- option but `memory` and `parameters` is for that, and says what is not searched; false is its default.
---   memory: the most bytes of a rank in all: a number, or a text as `"80GiB"`
---   parameters: the most bytes of parameters that a rank keeps; not in train's `parallel`
---   cluster: where the ranks run, as in `device_mesh`; `--cluster` comes before it
---   styles: over `tp`, see `parallelize`: these stay
---   units: patterns of the units of `fully_shard`; by default members of lists, and what is large beside them
---   split: see `pipeline`
---   dp_replicate: copies of the parameters, for parts of the batch
---   dp_shard: ranks that share the batch, over which parameters are cut by `fully_shard`
---   tp: ranks that share each layer, by the placements of `auto()`
---   pp: stages of a pipeline
---   cp: ranks that share each sequence
---   ep: ranks of `dp_shard` that share the experts of `nn.MoE`
---   context: the method of `context_parallel`
---   balance: see `context_parallel`
---   reshard_after_forward: `"always"`, `"never"`, `"default"`: not in the last unit
---   zero: see `replicate`
---   schedule: see `pipeline`
---   stages: of each rank of `pp`
---   microbatches: equal parts of the batch
---   checkpoint: see `train`; `"memory"`: what fits in a rank's memory is kept
---   bucketing: see `train`
---   prefetch: see `train`
---   async_tp: see `parallelize`
function plan.auto(options)
  options = base.options(options or {}, "auto", OPTIONS)
  local a = base.make("automatic", base.named("auto"))
  limits_of[a] = {memory = bytes_option(options, "memory"), parameters = bytes_option(options, "parameters"),
    line = core.line()}
  for name in pairs(options) do
    if not OF_PLACEMENTS[name] then limits_of[a].of_mesh = name end
  end
  base.note_auto(a, options)
  return a
end

-- auto() over tp of a mesh that tpgen finds: all large parameters are cut, as other dimensions cut the batch.
function base.auto_of_tp()
  local a = base.make("automatic", base.named("auto"))
  limits_of[a] = {memory = 0, parameters = 0, cuts_large = true, line = core.line()}
  return a
end

-- Leaves the modules, and all below them, to the choice over these dimensions of the mesh.
function base.leave_to_auto(modules, dims, a)
  if limits_of[a].of_mesh then
    fail("auto's %s is for train's parallel = auto{...}, which makes the mesh; this mesh is given", limits_of[a].of_mesh)
  end
  asked[#asked + 1] = {modules = modules, dims = dims, limits = limits_of[a]}
end

base.parts_of_archives = {} -- by module of an exported program: the parts of its projection

local function part_below(module, is_styled)
  local parts, children = base.parts_of_archives[module], base.children(module)
  if parts and not is_styled[module] then base.set_parts(module, parts, "auto") end
  for i = 2, #children, 2 do part_below(children[i], is_styled) end
end

-- Called before the model is part of the graph: projections of exported programs are cut part by part, unless the plan has a
-- style for them.
function base.part_automatic(is_styled)
  for _, a in ipairs(asked) do
    local ranks = 1
    for _, dim in ipairs(a.dims) do ranks = ranks * base.ranks_along(dim) end
    for _, module in ipairs(ranks > 1 and a.modules or {}) do part_below(module, is_styled) end
  end
end

local function add_all(module, indices, line)
  indices[#indices + 1] = base.index(module) or fail("auto() of line %d is for a %s that is not part of the model", line,
    base.class_name(module))
  local children = base.children(module)
  for i = 2, #children, 2 do add_all(children[i], indices, line) end
end

-- Called when the model is part of the graph.
function base.lower_auto()
  for _, a in ipairs(asked) do
    local indices = {}
    for _, module in ipairs(a.modules) do add_all(module, indices, a.limits.line) end
    core.add_automatic(indices, base.dims_in_graph(a.dims), a.limits.memory, a.limits.parameters,
      a.limits.cuts_large == true, a.limits.line)
  end
end
