-- run.lua: the nodes of an exported program, one after the other, become operations of ours.
local core, base = ...
local fail, raw, constants, torch = base.fail, base.raw, base.constants, base.torch
local operators, on_constants = base.torch_operators, base.torch_on_constants
local TYPES, damaged, union = torch.TYPES, torch.damaged, torch.union
local operator_of, each_name, each_input = torch.operator_of, torch.each_name, torch.each_input

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
    return TYPES[v] or OTHERS[v] or fail("torch_export: %s has a tensor of type %s, which is not supported", path,
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

-- The keys of what a graph with operators in place knows of its values (changes.lua), and of layout(name).
local SHARED, LAYOUT = {}, {}

local function changes_in_place(nodes)
  for _, node in ipairs(nodes) do
    if torch.changes(node) then return true end
  end
  return false
end

local function arguments_of(node, values, path)
  local a = {}
  for _, input in ipairs(node.inputs) do a[input.name] = decode(input.arg, values, path) end
  a.reads_further = node.reads_further
  if operator_of(node.target) == "as_strided" then
    a.layout = function() return values[LAYOUT](torch.argument(node, "self").as_tensor.name) end
  end
  return a
end

-- ---------------------------------------------------------------------- arguments that nothing takes

-- Those that change no result: where values are, by which of a library's functions they are computed, and in which order
-- (`path`, of einsum).
local WITHOUT_EFFECT = {}
for name in string.gmatch("pin_memory non_blocking copy implicit generator cudnn_enable cudnn_enabled benchmark deterministic "
  .. "allow_tf32 check_errors memory_format layout device path "
  .. "enable_gqa N C HxW", "%S+") do -- these the shapes say, too
  WITHOUT_EFFECT[name] = true
end

local function is_default(v, default)
  if type(v) ~= "table" or type(default) ~= "table" then return v == default end
  for i = 1, math.max(#v, #default) do
    if v[i] ~= default[i] then return false end
  end
  return true
end

-- f(a), which has to read each argument, or this is its default: one that is ignored could change the result.
local function with_all_read(f, a, node)
  local read = {}
  local function seen(_, key)
    read[key] = true
    return a[key]
  end
  local results = table.pack(f(setmetatable({}, {__index = seen, __newindex = function(_, key, v) a[key] = v end})))
  if results[1] == nil then return end
  -- Of gradients, which are dense sums here; ATen's defaults, where a schema has none.
  if a.scale_grad_by_freq == false then read.scale_grad_by_freq = true end
  if a.sparse == false then read.sparse = true end
  local defaults = torch.defaults[string.match(node.target, "^torch%.ops%.aten%.(.*)$")] or {}
  for _, input in ipairs(node.inputs) do
    local key = input.name
    if a[key] ~= nil and not read[key] and not WITHOUT_EFFECT[key] and not is_default(a[key], defaults[key]) then
      fail("torch_export: %s: its argument %s%s is not supported", node.target, key,
        type(a[key]) ~= "table" and not core.is_tensor(a[key]) and " = " .. tostring(a[key]) or "")
    end
  end
  return table.unpack(results, 1, results.n)
end

local function results_of(node, values, path)
  local a, name = arguments_of(node, values, path), operator_of(node.target)
  local constant, tensor = kinds_of(a)
  if torch.has_complex(a) then
    as_tensors(a)
    return with_all_read(function(given) return torch.of_complex(name, given) end, a, node)
  end
  if constant and not tensor and on_constants[name] then
    local found = table.pack(with_all_read(on_constants[name], a, node))
    if found[1] then return table.unpack(found, 1, found.n) end
  end
  if constant and not base.torch_takes_constants[name] then as_tensors(a) end
  return with_all_read(operators[name], a, node)
end

-- A change of no elements changes nothing.
local function is_change_of_none(node, values)
  local first = torch.changed_values(node)[1]
  local v = first and values[first]
  return constants.is(v) and base.elements(v.shape) == 0
end

local function run_node(node, values, path)
  local shared, name, trace = values[SHARED], operator_of(node.target), node.metadata and node.metadata.stack_trace
  core.at_node(node.target, type(trace) == "string" and trace or nil)
  if shared then
    local follows = torch.follows_statistics(node)
    each_input(node, function(read)
      if not follows[read] then torch.before_read(read, values, shared) end
    end)
  end
  local changes_none = shared and is_change_of_none(node, values)
  local results = changes_none and {values[torch.changed_values(node)[1]]} or table.pack(results_of(node, values, path))
  local outputs = {}
  for _, out in ipairs(node.outputs) do
    each_name(out, function(own)
      outputs[#outputs + 1] = own
      values[own] = results[#outputs]
    end)
  end
  if not shared or changes_none then return end
  torch.follow(node, name, arguments_of(node, values, path), outputs, values, shared, function(i)
    return (select(i, results_of(node, values, path)))
  end)
end

-- The inputs that styles can name: the first tensors that are not parameters.
local MOST_TENSORS = 8

local function tensors_among(names, values, parameters)
  local list, shared = {}, values[SHARED]
  for _, name in ipairs(names) do
    if shared and values[name] ~= nil and not shared.renamed[name] and not shared.stale[name] then
      torch.before_read(name, values, shared)
    end
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

torch.SHARED, torch.LAYOUT, torch.changes_in_place, torch.run_call = SHARED, LAYOUT, changes_in_place, run_call
