-- torch_run.lua: the nodes of an exported program, one after the other, become operations of ours.
local core, base = ...
local fail, raw, constants, torch = base.fail, base.raw, base.constants, base.torch
local operators, on_constants = base.torch_operators, base.torch_on_constants
local TYPES, damaged, union = torch.TYPES, torch.damaged, torch.union
local short, operator_of, IN_PLACE = torch.short, torch.operator_of, torch.IN_PLACE
local each_name, each_input, put_back = torch.each_name, torch.each_input, torch.put_back

local NON_FINITE = {Infinity = math.huge, ["-Infinity"] = -math.huge, NaN = 0 / 0}

-- Whole numbers of 8 and 16 bits have 32 here; none that a model computes with is so large that this shows.
local OTHERS = {[1] = "int32", [2] = "int32", [3] = "int32", [torch.COMPLEX] = "complex64"}

local decode

local function named(values, name, path)
  local v = values[name]
  if v == nil then damaged(path, "there is no value " .. string.sub(name, 1, 80)) end
  return v
end

local function decode_list(list, values, path)
  local result = {}
  for i, v in ipairs(list) do
    if type(v) ~= "table" then
      result[i] = v
    elseif v.name then
      result[i] = named(values, v.name, path)
    elseif v.as_tensor then
      result[i] = named(values, v.as_tensor.name, path)
    elseif v.as_none then
      result[i] = false
    else
      result[i] = v.as_int or values[v.as_name]
    end
  end
  return result
end

-- An argument as our functions take it.
function decode(arg, values, path)
  local kind, v = union(arg, path)
  if kind == "as_tensor" then return named(values, v.name, path) end
  if kind == "as_float" then return NON_FINITE[v] or v end
  if kind == "as_int" or kind == "as_bool" or kind == "as_string" then return v end
  if kind == "as_sym_int" or kind == "as_sym_float" then return v.as_int or v.as_float or values[v.as_name] end
  if kind == "as_ints" then return table.move(v, 1, #v, 1, {}) end
  if kind == "as_floats" or kind == "as_bools" then return v end
  if kind == "as_tensors" or kind == "as_optional_tensors" or kind == "as_sym_ints" then
    return decode_list(v, values, path)
  end
  if kind == "as_scalar_type" then
    return TYPES[v] or OTHERS[v] or fail("torch_export: %s has a tensor of type %s, which is not there", path,
      torch.type_name(v))
  end
  return nil -- none, and devices, layouts and memory formats, which change nothing here
end

-- Whether some tensors among the arguments are constants, and whether some are not.
local function kinds_of(a)
  local constant, tensor = false, false
  local function look(v)
    if constants.is(v) then constant = true elseif core.is_tensor(v) then tensor = true end
  end
  for _, v in pairs(a) do
    look(v)
    if type(v) == "table" and not constants.is(v) then
      for i = 1, #v do look(v[i]) end
    end
  end
  return constant, tensor
end

local function as_tensors(a)
  for key, v in pairs(a) do
    if constants.is(v) then
      a[key] = constants.tensor(v)
    elseif type(v) == "table" then
      for i = 1, #v do
        if constants.is(v[i]) then v[i] = constants.tensor(v[i]) end
      end
    end
  end
end

-- The key of what a graph with operators in place knows of its views: view_of and version by name.
local SHARED = {}

local function changes_in_place(nodes)
  for _, node in ipairs(nodes) do
    operator_of(node.target)
    if IN_PLACE[short(node.target)] then return true end
  end
  return false
end

local function results_of(node, values, path)
  local a, name = {}, operator_of(node.target)
  for _, input in ipairs(node.inputs) do a[input.name] = decode(input.arg, values, path) end
  local constant, tensor = kinds_of(a)
  if torch.has_complex(a) then
    as_tensors(a)
    return torch.of_complex(name, a)
  end
  if constant and not tensor and on_constants[name] then
    local found = table.pack(on_constants[name](a))
    if found[1] then return table.unpack(found, 1, found.n) end
  end
  if constant and not base.torch_takes_constants[name] then as_tensors(a) end
  return operators[name](a)
end

-- Operators whose result shares its storage with `self`; and how a change of the result changes that.
local function inverse_by_shape(whole, part) return base.view(part, core.shape(whole)) end

local VIEWS = {
  view = inverse_by_shape, reshape = inverse_by_shape, unsqueeze = inverse_by_shape,
  squeeze = inverse_by_shape, flatten = inverse_by_shape, unflatten = inverse_by_shape,
  alias = inverse_by_shape, detach = inverse_by_shape, lift_fresh_copy = inverse_by_shape,
  contiguous = inverse_by_shape,
  transpose = function(_, part, a) return raw.transpose(part, a.dim0, a.dim1) end,
  t = function(_, part) return raw.t(part) end,
  permute = function(whole, part, a)
    local back, shape = {}, core.shape(whole)
    for i, d in ipairs(a.dims) do back[base.dimension(shape, d) + 1] = i - 1 end
    return raw.permute(part, back)
  end,
  select = function(whole, part, a)
    local shape = core.shape(whole)
    local d = base.dimension(shape, a.dim)
    local index = a.index < 0 and a.index + shape[d + 1] or a.index
    return put_back(whole, raw.unsqueeze(part, d), d, index, 1)
  end,
  slice = function(whole, part, a)
    if a.step and a.step ~= 1 then fail("a change of every %d-th element is not there", a.step) end
    local shape = core.shape(whole)
    local d = base.dimension(shape, a.dim or 0)
    local first = a.start or 0
    if first < 0 then first = math.max(first + shape[d + 1], 0) end
    return put_back(whole, part, d, first, core.shape(part)[d + 1])
  end,
}

local function tensor_of(v) return constants.is(v) and constants.tensor(v) or v end

-- A value whose storage changed after it was read is made anew where it is read again.
local function up_to_date(name, values, shared)
  local view = shared.view_of[name]
  if not view then return end
  up_to_date(view.parent, values, shared)
  local version = shared.version[view.parent] or 0
  if view.version == version then return end
  view.version = version
  shared.version[name] = (shared.version[name] or 0) + 1
  values[name] = view.make(values[view.parent])
end

-- The value has changed: so has what it is a view of.
local function change(name, new, values, shared, path)
  local view, parameter = shared.view_of[name], shared.parameters[name]
  if parameter then
    fail("torch_export: %s changes its parameter %s in place, as it goes forward, which is not there", path, parameter)
  end
  values[name] = new
  shared.version[name] = (shared.version[name] or 0) + 1
  if not view then return end
  if not view.inverse then
    fail("torch_export: %s changes a view in place by a way that is not there: %s", path, view.target)
  end
  local whole = tensor_of(values[view.parent])
  if torch.is_complex(whole) or torch.is_complex(new) then
    fail("torch_export: %s changes complex numbers in place, which is not there", path)
  end
  change(view.parent, raw.to(view.inverse(whole, tensor_of(new), view.arguments), core.type(whole)),
    values, shared, path)
  view.version = shared.version[view.parent]
end

local function run_node(node, values, path)
  local shared, name, trace = values[SHARED], operator_of(node.target), node.metadata and node.metadata.stack_trace
  core.at_node(node.target, type(trace) == "string" and trace or nil)
  if shared then each_input(node, function(read) up_to_date(read, values, shared) end) end
  local results = table.pack(results_of(node, values, path))
  local at, first = 0, nil
  local function set(out)
    at = at + 1
    values[out] = results[at]
    first = first or out
  end
  for _, out in ipairs(node.outputs) do each_name(out, set) end
  local of = shared and node.inputs[1] and node.inputs[1].arg.as_tensor
  if not of then return end
  if IN_PLACE[short(node.target)] then
    change(of.name, results[1], values, shared, path)
    shared.view_of[first] = {parent = of.name, version = shared.version[of.name],
      inverse = inverse_by_shape, make = function(v) return v end, target = node.target}
  elseif VIEWS[name] and node.inputs[1].name == "self" and at == 1 then
    local arguments = {}
    for _, input in ipairs(node.inputs) do arguments[input.name] = decode(input.arg, values, path) end
    shared.view_of[first] = {parent = of.name, version = shared.version[of.name] or 0,
      inverse = VIEWS[name], arguments = arguments, target = node.target,
      make = function() return (results_of(node, values, path)) end}
  end
end

-- The inputs that styles can name: the first tensors that are not parameters.
local MOST_TENSORS = 8

local function tensors_among(names, values, parameters)
  local list = {}
  for _, name in ipairs(names) do
    local v = values[name]
    if core.is_tensor(v) and not parameters[name] and #list < MOST_TENSORS then list[#list + 1] = v end
  end
  return list
end

local function run_call(call, modules, parameters, values, path)
  local module = call.path ~= "" and modules[call.path]
  if module then core.enter(module, table.unpack(tensors_among(call.reads, values, parameters))) end
  for _, item in ipairs(call.items) do
    if item.items then
      run_call(item, modules, parameters, values, path)
    else
      run_node(item, values, path)
    end
  end
  if module then core.leave(table.unpack(tensors_among(call.gives, values, parameters))) end
end

torch.SHARED, torch.changes_in_place, torch.up_to_date, torch.run_call = SHARED, changes_in_place, up_to_date, run_call
