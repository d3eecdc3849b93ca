-- styles.lua: the styles that place a model on the mesh, as in torch.distributed.tensor.parallel:
-- Colwise, Rowwise, SequenceParallel, PrepareModuleInput, PrepareModuleOutput and
-- PrepareModuleInputOutput.
--
--   output_layouts         of Colwise and Rowwise: the layout of the module's output
--   desired_..._layouts    the requested layouts of inputs or outputs: a placement, or a list of one
--                          for each tensor, with false for no request
--   input_layouts, and PrepareModuleOutput's output_layouts: the layouts before that. They have no
--                          effect, as in PyTorch for a tensor that is a DTensor already: tpgen knows
--                          the layout of every tensor
--   use_local_output, use_local_input: whether each rank treats the result as a tensor of its own.
--                          A plan has only whole tensors: true is allowed for a value that is whole
--                          on every rank, and refused elsewhere
local core, base, plan = ...
local fail = base.fail

local REPLICATE = core.Replicate()

-- The requests of each style that the plan makes: its name, its line, and a function of a class and
-- one of its modules. It returns the layouts of parameters (by name, one placement for all, or
-- nil), and a list of other requests, each {"input" or "output", index, placement}.
local asked = {}

local function style(name, requests)
  local s = base.make("style", base.named(name))
  asked[s] = {name = name, line = core.line(), requests = requests}
  return s
end

function base.style(s) return asked[s] end

-- A placement among a style's options, or the default.
local function placement_option(options, key, name, otherwise)
  if options[key] == nil then return otherwise end
  return base.expect(options[key], "placement", name .. "'s " .. key)
end

-- Whether all of these placements are Replicate(), or false.
local function all_whole(placements)
  for _, p in ipairs(placements) do
    if p and tostring(p) ~= "Replicate()" then return false end
  end
  return true
end

local function check_local(v, key, name, placements)
  if v == nil or not base.boolean(v, name .. "'s " .. key) then return end
  if all_whole(placements) then return end
  fail("%s's %s = true has no meaning where a rank holds a part: a plan speaks of whole tensors, "
    .. "and each rank computes on its part by itself; leave it out", name, key)
end

-- -------------------------------------------------------------------------------- Colwise, Rowwise

-- PyTorch's own, in a program that torch.export saved: its projection of q, k and v is a parameter.

-- The placements of each class's parameters, under the styles that know the class.
local COLWISE = {
  [base.Linear] = {weight = core.Shard(0), bias = core.Shard(0)},
  [base.Conv1D] = {weight = core.Shard(1), bias = core.Shard(0)},
  [base.Embedding] = {weight = core.Shard(1)},
  [base.MultiheadAttention] = {in_proj_weight = core.Shard(0), in_proj_bias = core.Shard(0)},
}
local ROWWISE = {
  [base.Linear] = {weight = core.Shard(1), bias = REPLICATE},
  [base.Conv1D] = {weight = core.Shard(0), bias = REPLICATE},
  [base.Embedding] = {weight = core.Shard(0)},
}

-- An LSTM and the like is cut over its hidden units: each gate's weights and biases by themselves.
local function places_of(class, module, name, known)
  return known[class] or known == COLWISE and base.gates[class] and core.Shard(0)
    or fail("%s knows no %s; it knows Linear, Conv1D and Embedding%s", name, base.class_name(module),
      known == COLWISE and ", and LSTM, GRU, RNN and their cells" or "")
end

-- The dimension along which a fused projection's parameters are side by side.
local PARTED = {
  [base.Linear] = {weight = 0, bias = 0},
  [base.Conv1D] = {weight = 1, bias = 0},
  [base.MultiheadAttention] = {in_proj_weight = 0, in_proj_bias = 0},
}
local MOST_PARTS = 8

-- The sizes of the parts of n outputs: parts = 3, or parts = {q, k, v}.
local function part_sizes(parts, n, name)
  local what, sizes, sum = name .. "'s parts", {}, 0
  if base.kind(parts) ~= "table" then
    base.integer(parts, what, 2, MOST_PARTS)
    if n % parts ~= 0 then
      fail("%s: %d outputs do not make %d equal parts; give their sizes, as in parts = {64, 32, 32}",
        what, n, parts)
    end
    for i = 1, parts do sizes[i] = n // parts end
    return sizes
  end
  local count = base.length(parts, what)
  if count < 2 or count > MOST_PARTS then fail("%s are 2 to %d, not %d", what, MOST_PARTS, count) end
  for i = 1, count do
    sizes[i] = base.integer(rawget(parts, i), string.format("%s[%d]", what, i), 1, 1 << 40)
    sum = sum + sizes[i]
  end
  if sum ~= n then
    fail("%s make %d outputs, and the %d parts of a projection have all of its %d", what, sum, count, n)
  end
  return sizes
end

-- Keeps the parameters of a module in parts.
local function set_parts(module, parts, name)
  local class = core.class_of(module)
  local dims = PARTED[class]
  if base.gates[class] then
    fail("%s of %s takes no parts: its gates are the parts", name, base.class_name(module))
  end
  if not dims then
    fail("%s's parts are for a Linear or a Conv1D, not for %s", name, base.class_name(module))
  end
  for _, key in ipairs{"weight", "bias", "in_proj_weight", "in_proj_bias"} do
    local tensor = dims[key] and module[key]
    if base.is_tensor(tensor) then
      core.set_parts(tensor, dims[key], part_sizes(parts, core.shape(tensor)[dims[key] + 1], name))
    end
  end
end

base.set_parts = set_parts

-- Keeps each gate of an LSTM and the like as a part.
local function set_gates(module, name)
  local gates = base.gates[core.class_of(module)]
  for _, key in ipairs(gates and gates > 1 and core.parameter_names(module) or {}) do
    core.set_parts(module[key], 0, part_sizes(gates, core.shape(module[key])[1], name))
  end
end

-- An Embedding's input is indices: whole. The output of a projection in parts is that of each part,
-- as its weight makes it: nothing is asked for.
local function linear_style(name, known, input, output, keys)
  local allowed = base.option_names(name, {"input_layouts", "output_layouts", "use_local_output", table.unpack(keys)})
  return function(options)
    options = base.options(options, name, allowed)
    placement_option(options, "input_layouts", name)
    local result = placement_option(options, "output_layouts", name, output)
    local parts = options.parts
    if parts ~= nil then
      if options.output_layouts ~= nil then
        fail("%s takes parts or output_layouts, not both: each part keeps its own layout", name)
      end
      if base.kind(parts) ~= "table" then base.integer(parts, name .. "'s parts", 2, MOST_PARTS) end
    end
    check_local(options.use_local_output, "use_local_output", name, {result})
    local s = style(name, function(class, module)
      local places = places_of(class, module, name, known)
      local is_embedding = class == base.Embedding
      local requests = {{"input", 0, is_embedding and REPLICATE or input}, {"output", 0, result}}
      if parts ~= nil then requests[2] = nil end
      return places, requests
    end)
    if parts ~= nil then
      asked[s].prepare = function(module) set_parts(module, parts, name) end
    elseif known == COLWISE then
      asked[s].prepare = function(module) set_gates(module, name) end
    end
    return s
  end
end

--- # Styles
--- Colwise(options?): cuts a Linear, a Conv1D or an Embedding by its outputs; an LSTM and the like by its hidden
--- units.
---   input_layouts: without effect, as tpgen knows all layouts
---   output_layouts = Shard(-1): the layout of the output
---   use_local_output: true only where the output is whole on every rank
---   parts: a weight of several projections side by side: how many equal ones, or their sizes
plan.Colwise = linear_style("Colwise", COLWISE, REPLICATE, core.Shard(-1), {"parts"})
--- Rowwise(options?): cuts by the inputs; the output is summed.
---   input_layouts: without effect
---   output_layouts = Replicate(): the layout of the output
---   use_local_output: true only where the output is whole on every rank
plan.Rowwise = linear_style("Rowwise", ROWWISE, core.Shard(-1), REPLICATE, {})

-- ---------------------------------------------------------------------------------------- experts

local function experts_only(class, module, name)
  if class ~= base.Experts then
    fail("%s is for nn.Experts, as the experts of an nn.MoE, not for %s", name, base.class_name(module))
  end
end

--- ExpertTensorParallel(options?): of nn.Experts: each rank has a part of each expert.
function plan.ExpertTensorParallel(options)
  base.options(options, "ExpertTensorParallel", {})
  return style("ExpertTensorParallel", function(class, module)
    experts_only(class, module, "ExpertTensorParallel")
    return {gate_proj = core.Shard(1), up_proj = core.Shard(1), down_proj = core.Shard(2)},
      {{"input", 0, REPLICATE}}
  end)
end

--- ExpertParallel(options?): of nn.Experts: each rank has some of the experts, to which tokens travel.
function plan.ExpertParallel(options)
  base.options(options, "ExpertParallel", {})
  return style("ExpertParallel", function(class, module)
    experts_only(class, module, "ExpertParallel")
    return core.Shard(0), {{"input", 0, core.Shard(0)}, {"output", 0, core.Shard(1)}}
  end)
end

-- -------------------------------------------------------------------------------- SequenceParallel

-- SequenceParallel{sequence_dim = 1}: whole parameters; input and output sharded along the
-- sequence. For RMSNorm, LayerNorm, Dropout, and other modules that work on each position by
-- itself.
--- SequenceParallel(options?): whole parameters; input and output are cut along the sequence.
---   sequence_dim = 1: the dimension
---   use_local_output: false, or left out
local SEQUENCE_OPTIONS = base.option_names("SequenceParallel", {"sequence_dim", "use_local_output"})

function plan.SequenceParallel(options)
  options = base.options(options, "SequenceParallel", SEQUENCE_OPTIONS)
  local dim = options.sequence_dim == nil and 1 or options.sequence_dim
  local cut = base.shard(base.integer(dim, "SequenceParallel's sequence_dim", -8, 7))
  check_local(options.use_local_output, "use_local_output", "SequenceParallel", {cut})
  return style("SequenceParallel", function()
    return REPLICATE, {{"input", 0, cut}, {"output", 0, cut}}
  end)
end

-- ----------------------------------------------------------------------------------- PrepareModule

-- A placement, or a list of one for each tensor: false for no request.
local function layouts(v, what)
  if base.kind(v) == "placement" then return {v} end
  if base.kind(v) ~= "table" then
    fail("%s must be a placement or a list of them, not %s", what, base.a(v))
  end
  for i = 1, base.length(v, what) do
    if v[i] ~= false then base.expect(v[i], "placement", string.format("%s[%d]", what, i)) end
  end
  return v
end

-- The requests of two options: the layout of the inputs or outputs, and the requested one.
-- use_local: the name of the third option.
local function prepared(options, name, side, use_local)
  local given, desired = side .. "_layouts", "desired_" .. side .. "_layouts"
  if options[desired] == nil then fail("%s needs %s", name, desired) end
  local to, requests = layouts(options[desired], name .. "'s " .. desired), {}
  if options[given] ~= nil then
    local from = layouts(options[given], name .. "'s " .. given)
    if #from ~= #to then
      fail("%s's %s are %d, and its %s %d: one for each tensor", name, given, #from, desired, #to)
    end
  end
  check_local(options[use_local], use_local, name, to)
  for i = 1, #to do
    if to[i] then requests[#requests + 1] = {side, i - 1, to[i]} end
  end
  return requests
end

local OPTIONS = {
  input = {"input_layouts", "desired_input_layouts"},
  output = {"output_layouts", "desired_output_layouts"},
}

local function forbid_named_arguments(options, name)
  for _, key in ipairs{"input_kwarg_layouts", "desired_input_kwarg_layouts"} do
    if type(options) == "table" and options[key] ~= nil then
      fail("%s has no %s: forward takes its tensors by their place, in a plan; give their "
        .. "placements in input_layouts and desired_input_layouts", name, key)
    end
  end
end

-- sides: "input", "output", each with the name of the option that makes it local.
local function prepare(name, sides)
  local allowed = {}
  for side, use_local in pairs(sides) do
    for _, key in ipairs(OPTIONS[side]) do allowed[#allowed + 1] = key end
    allowed[#allowed + 1] = use_local
  end
  base.option_names(name, allowed)
  return function(options)
    forbid_named_arguments(options, name)
    options = base.options(options, name, allowed)
    local requests = {}
    for side, use_local in pairs(sides) do
      for _, request in ipairs(prepared(options, name, side, use_local)) do
        requests[#requests + 1] = request
      end
    end
    return style(name, function() return nil, requests end)
  end
end

-- In PyTorch too, this option for a local input has the name use_local_output.
--- PrepareModuleInput(options): the layouts of a module's inputs.
---   input_layouts: without effect
---   desired_input_layouts: a placement, or a list of one for each tensor, with false for none
---   use_local_output: true only where they are whole on every rank
plan.PrepareModuleInput = prepare("PrepareModuleInput", {input = "use_local_output"})
--- PrepareModuleOutput(options): the layouts of a module's outputs.
---   output_layouts: without effect
---   desired_output_layouts: as above
---   use_local_output: true only where they are whole on every rank
plan.PrepareModuleOutput = prepare("PrepareModuleOutput", {output = "use_local_output"})
--- PrepareModuleInputOutput(options): both.
---   input_layouts: without effect
---   desired_input_layouts: as above
---   use_local_input: true only where they are whole on every rank
---   output_layouts: without effect
---   desired_output_layouts: as above
---   use_local_output: true only where they are whole on every rank
plan.PrepareModuleInputOutput = prepare("PrepareModuleInputOutput",
  {input = "use_local_input", output = "use_local_output"})

-- ----------------------------------------------------------------------------------- ModuleLayouts

local LAYOUTS = base.option_names("ModuleLayouts", {"parameters", "inputs", "outputs", "parts"})

-- The requests of a side: a placement, or a list of them.
local function requests_of(v, side, what, requests)
  if v == nil then return end
  local list = layouts(v, what)
  for i = 1, #list do
    if list[i] then requests[#requests + 1] = {side, i - 1, list[i]} end
  end
end

--- ModuleLayouts(options): the layouts of any module's own parameters, of its inputs and of its outputs.
---   parameters: placements by name, as `{weight = Shard(0)}`
---   inputs: a placement, or a list of one for each tensor, with false for none
---   outputs: as above
---   parts: see `Colwise`; each part is a tensor of its own, also to `auto()`
function plan.ModuleLayouts(options)
  options = base.options(options, "ModuleLayouts", LAYOUTS)
  local places, requests = options.parameters or {}, {}
  base.expect(places, "table", "ModuleLayouts's parameters")
  for name, placement in pairs(places) do
    base.expect(placement, "placement", string.format("ModuleLayouts's parameter '%s'", tostring(name)))
  end
  requests_of(options.inputs, "input", "ModuleLayouts's inputs", requests)
  requests_of(options.outputs, "output", "ModuleLayouts's outputs", requests)
  local s = style("ModuleLayouts", function(class, module)
    for name in pairs(places) do
      if type(name) ~= "string" or not base.is_tensor(module[name]) then
        fail("ModuleLayouts: %s has no parameter '%s'", base.class_name(module), tostring(name))
      end
    end
    return places, requests
  end)
  if options.parts ~= nil then
    asked[s].prepare = function(module) set_parts(module, options.parts, "ModuleLayouts") end
  end
  return s
end
