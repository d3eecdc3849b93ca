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

local function style(name, wishes)
  local s = base.make("style", base.named(name))
  asked[s] = {name = name, line = core.line(), wishes = wishes}
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

-- The placements of each class's parameters, under the styles that know the class.
local COLWISE = {
  [base.Linear] = {weight = core.Shard(0), bias = core.Shard(0)},
  [base.Embedding] = {weight = core.Shard(1)},
}
local ROWWISE = {
  [base.Linear] = {weight = core.Shard(1), bias = REPLICATE},
  [base.Embedding] = {weight = core.Shard(0)},
}

local function places_of(class, module, name, known)
  return known[class]
    or fail("%s knows no %s; it knows Linear and Embedding", name, base.class_name(module))
end

-- An Embedding's input is indices: whole.
local function linear_style(name, known, input, output)
  return function(options)
    options = base.options(options, name, {"input_layouts", "output_layouts", "use_local_output"})
    placement_option(options, "input_layouts", name)
    local result = placement_option(options, "output_layouts", name, output)
    check_local(options.use_local_output, "use_local_output", name, {result})
    return style(name, function(class, module)
      local places = places_of(class, module, name, known)
      local is_embedding = class == base.Embedding
      return places, {{"input", 0, is_embedding and REPLICATE or input}, {"output", 0, result}}
    end)
  end
end

plan.Colwise = linear_style("Colwise", COLWISE, REPLICATE, core.Shard(-1))
plan.Rowwise = linear_style("Rowwise", ROWWISE, core.Shard(-1), REPLICATE)

-- -------------------------------------------------------------------------------- SequenceParallel

-- SequenceParallel{sequence_dim = 1}: whole parameters; input and output sharded along the
-- sequence. For RMSNorm, LayerNorm, Dropout, and other modules that work on each position by
-- itself.
function plan.SequenceParallel(options)
  options = base.options(options, "SequenceParallel", {"sequence_dim", "use_local_output"})
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
  local to, wishes = layouts(options[desired], name .. "'s " .. desired), {}
  if options[given] ~= nil then
    local from = layouts(options[given], name .. "'s " .. given)
    if #from ~= #to then
      fail("%s's %s are %d, and its %s %d: one for each tensor", name, given, #from, desired, #to)
    end
  end
  check_local(options[use_local], use_local, name, to)
  for i = 1, #to do
    if to[i] then wishes[#wishes + 1] = {side, i - 1, to[i]} end
  end
  return wishes
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
  return function(options)
    forbid_named_arguments(options, name)
    options = base.options(options, name, allowed)
    local wishes = {}
    for side, use_local in pairs(sides) do
      for _, wish in ipairs(prepared(options, name, side, use_local)) do
        wishes[#wishes + 1] = wish
      end
    end
    return style(name, function() return nil, wishes end)
  end
end

-- In PyTorch too, this option for a local input has the name use_local_output.
plan.PrepareModuleInput = prepare("PrepareModuleInput", {input = "use_local_output"})
plan.PrepareModuleOutput = prepare("PrepareModuleOutput", {output = "use_local_output"})
plan.PrepareModuleInputOutput = prepare("PrepareModuleInputOutput",
  {input = "use_local_input", output = "use_local_output"})
