-- torch_export.lua: torch_export("model.pt2"): a program that torch.export saved, as a module like
-- one written in Lua. Its modules and parameters have the names of the exported model, so that
-- styles, units and policies find them by the same patterns.
local core, base, plan = ...
local fail, raw, constants = base.fail, base.raw, base.constants
local operators, on_constants = base.torch_operators, base.torch_on_constants

local SCHEMA = 8 -- the major version of the schema that is read here
local TYPES = {[4] = "int32", [5] = "int64", [7] = "float32", [12] = "bool", [13] = "bfloat16"}

-- ----------------------------------------------------------------------------------------- the file

-- The fields of an archive are as hostile as its author: each is looked at before it is used.
local function field(t, key, kind, path)
  local v = type(t) == "table" and t[key] or nil
  if type(v) ~= kind then
    fail("torch_export: %s is damaged: '%s' must be a %s there", path, key, kind)
  end
  return v
end

local function damaged(path, what) fail("torch_export: %s is damaged: %s", path, what) end

local function is_named(v) return type(v) == "table" and type(v.name) == "string" end
local function is_number(v) return type(v) == "number" end
local function is_text(v) return type(v) == "string" end
local function is_truth(v) return type(v) == "boolean" end
local function is_whole(v) return math.type(v) == "integer" end
local function list_of(is)
  return function(v)
    if type(v) ~= "table" then return false end
    for i = 1, rawlen(v) do
      if not is(v[i]) then return false end
    end
    return core.stray_key(v) == nil
  end
end
local function is_symbol(v)
  return type(v) == "table" and (is_text(v.as_name) or is_number(v.as_int) or is_number(v.as_float)
    or is_truth(v.as_bool))
end
local function is_optional(v)
  return type(v) == "table" and (v.as_none ~= nil or is_named(v.as_tensor))
end
local function is_anything() return true end

-- The kinds of arguments, and what each holds.
local KINDS = {
  as_tensor = is_named, as_tensors = list_of(is_named), as_optional_tensors = list_of(is_optional),
  as_none = is_anything, as_int = is_whole, as_ints = list_of(is_whole),
  as_float = function(v) return is_number(v) or v == "Infinity" or v == "-Infinity" or v == "NaN" end,
  as_floats = list_of(is_number), as_bool = is_truth, as_bools = list_of(is_truth), as_string = is_text,
  as_strings = list_of(is_text), as_sym_int = is_symbol, as_sym_float = is_symbol,
  as_sym_bool = is_symbol, as_sym_ints = list_of(is_symbol), as_scalar_type = is_whole,
  as_memory_format = is_anything, as_layout = is_anything, as_device = is_anything,
  as_optional_tensor = is_optional,
  as_graph = function(v) return type(v) == "table" and type(v.graph) == "table" end,
}

-- The only key of a union, and what it holds.
local function union(u, path)
  if type(u) ~= "table" then fail("torch_export: %s is damaged: an argument is no object", path) end
  local kind, held
  for key, v in pairs(u) do
    if kind ~= nil then damaged(path, "an argument of two kinds") end
    kind, held = key, v
  end
  if kind == nil then damaged(path, "an argument of no kind") end
  return kind, held
end

local function check_argument(arg, path)
  local kind, v = union(arg, path)
  if not KINDS[kind] then fail("torch_export: %s has an argument of kind %s, which is not there", path, tostring(kind)) end
  if not KINDS[kind](v) then damaged(path, "an argument of kind " .. kind) end
end

-- All that a graph's nodes, inputs and outputs hold has the form of the schema.
local function check_graph(graph, path)
  for _, key in ipairs{"inputs", "outputs"} do
    for _, arg in ipairs(field(graph, key, "table", path)) do check_argument(arg, path) end
  end
  for _, node in ipairs(field(graph, "nodes", "table", path)) do
    field(node, "target", "string", path)
    if node.metadata ~= nil then field(node, "metadata", "table", path) end
    for _, input in ipairs(field(node, "inputs", "table", path)) do
      field(input, "name", "string", path)
      check_argument(field(input, "arg", "table", path), path)
      if input.arg.as_graph then check_graph(input.arg.as_graph.graph, path) end
    end
    for _, out in ipairs(field(node, "outputs", "table", path)) do check_argument(out, path) end
  end
end

-- The entries of a list of weights or of constants.
local function check_entries(entries, path)
  for name, entry in pairs(entries) do
    if not is_text(name) then damaged(path, "a tensor without a name") end
    field(entry, "path_name", "string", path)
    local meta = field(entry, "tensor_meta", "table", path)
    field(meta, "dtype", "number", path)
    for _, key in ipairs{"sizes", "strides"} do
      for _, s in ipairs(field(meta, key, "table", path)) do
        if type(s) ~= "table" or not is_whole(s.as_int) or s.as_int < 0 then damaged(path, name) end
      end
    end
    if #meta.sizes ~= #meta.strides or #meta.sizes > 8 then damaged(path, name) end
    local offset = field(meta, "storage_offset", "table", path)
    if not is_whole(offset.as_int) or offset.as_int < 0 then damaged(path, name) end
  end
end

local function check_specs(signature, path)
  for _, key in ipairs{"input_specs", "output_specs"} do
    for _, spec in ipairs(field(signature, key, "table", path)) do
      local kind, s = union(spec, path)
      if type(s) ~= "table" then damaged(path, "the signature's " .. tostring(kind)) end
      if kind == "user_input" or kind == "user_output" then
        check_argument(field(s, "arg", "table", path), path)
      elseif kind == "parameter" or kind == "buffer" or kind == "tensor_constant" then
        if not is_named(s.arg) or not is_text(s[kind .. "_name"]) then damaged(path, "the signature's " .. kind) end
      end
    end
  end
end

local function read(path)
  local json = core.archive_json(path, "models/model.json")
  if not json then
    fail("torch_export: %s has no models/model.json: save the exported program by torch.export.save "
      .. "of PyTorch 2.8 or later, under the name 'model'", path)
  end
  local version = field(json, "schema_version", "table", path).major
  if version ~= SCHEMA then
    fail("torch_export: %s has version %s of the schema; version %d is read", path,
      tostring(version), SCHEMA)
  end
  local program = field(json, "graph_module", "table", path)
  local weights = core.archive_json(path, "data/weights/model_weights_config.json") or {}
  local lifted = core.archive_json(path, "data/constants/model_constants_config.json")
  local found = {
    path = path,
    graph = field(program, "graph", "table", path),
    signature = field(program, "signature", "table", path),
    weights = field(weights, "config", "table", path),
    constants = lifted and field(lifted, "config", "table", path) or {},
  }
  check_graph(found.graph, path)
  check_specs(found.signature, path)
  check_entries(found.weights, path)
  check_entries(found.constants, path)
  return found
end

-- ------------------------------------------------------------------------------------- the modules

-- The modules on whose behalf a node runs: a list of {key =, path =, class =}, outermost first.
local stacks = {} -- by text: most nodes share theirs with a neighbour

local function stack_of(node)
  local stack = node.metadata and node.metadata.nn_module_stack
  if type(stack) ~= "string" then return {} end
  if stacks[stack] then return stacks[stack] end
  local list = {}
  for entry in string.gmatch(stack, "[^;]+") do
    local key, path, class = string.match(entry, "^([^,]*),([^,]*),(.*)$")
    if key then list[#list + 1] = {key = key, path = path, class = class} end
  end
  stacks[stack] = list
  return list
end

local function split_path(path)
  local parts = {}
  for part in string.gmatch(path, "[^.]+") do parts[#parts + 1] = part end
  return parts
end

-- The tree of names: {children = {name = node}, order = {name ...}, class =, parameters = {...}}.
local function new_node() return {children = {}, order = {}, parameters = {}} end

local function node_at(root, path)
  local at = root
  for _, part in ipairs(split_path(path)) do
    if not at.children[part] then
      at.children[part] = new_node()
      at.order[#at.order + 1] = part
    end
    at = at.children[part]
  end
  return at
end

-- Whether the children are numbered 0, 1, 2 ...
local function is_list(node)
  for i, name in ipairs(node.order) do
    if name ~= tostring(i - 1) then return false end
  end
  return #node.order > 0 and #node.parameters == 0
end

local function last_part(text) return string.match(text, "([%w_]+)$") or "Module" end

-- Classes of PyTorch that the styles know.
local KNOWN = {
  ["torch.nn.modules.linear.Linear"] = {class = base.Linear, name = "Linear"},
  ["transformers.pytorch_utils.Conv1D"] = {class = base.Conv1D, name = "Conv1D"},
  ["torch.nn.modules.sparse.Embedding"] = {class = base.Embedding, name = "Embedding"},
}

local function build(node, made, path)
  local self
  if is_list(node) and not node.class then
    local members = {}
    for i, name in ipairs(node.order) do
      members[i] = build(node.children[name], made, path == "" and name or path .. "." .. name)
    end
    self = base.ModuleList(members)
  else
    local known = node.class and KNOWN[node.class]
    self = base.module_of(known and known.class or false, known and known.name
      or node.class and last_part(node.class) or "Module")
    for _, p in ipairs(node.parameters) do self[p.name] = p.tensor end
    for _, name in ipairs(node.order) do
      self[name] = build(node.children[name], made, path == "" and name or path .. "." .. name)
    end
  end
  made[path] = self
  return self
end

-- -------------------------------------------------------------------------------------- parameters

local function sizes_of(meta, path)
  local sizes = {}
  for i, s in ipairs(field(meta, "sizes", "table", path)) do
    sizes[i] = type(s) == "table" and math.type(s.as_int) == "integer" and s.as_int
      or fail("torch_export: %s is damaged: a parameter's size is no number", path)
  end
  return sizes
end

-- Names of one tensor share this text.
local function place_of(entry)
  local meta, parts = entry.tensor_meta, {entry.path_name}
  for _, list in ipairs{meta.sizes, meta.strides} do
    for _, s in ipairs(list) do parts[#parts + 1] = tostring(s.as_int) end
    parts[#parts + 1] = "/"
  end
  parts[#parts + 1] = tostring(meta.storage_offset and meta.storage_offset.as_int)
  return table.concat(parts, " ")
end

local function parent_and_name(path)
  local parent, name = string.match(path, "^(.*)%.([^.]+)$")
  if parent then return parent, name end
  return "", path
end

-- The buffers that a batch_norm in training form changes.
local function followed_buffers(graph)
  local followed = {}
  for _, node in ipairs(graph.nodes) do
    local trains, buffers = false, {}
    for _, input in ipairs(node.inputs) do
      if input.name == "training" then trains = input.arg.as_bool end
      if (input.name == "running_mean" or input.name == "running_var") and input.arg.as_tensor then
        buffers[#buffers + 1] = input.arg.as_tensor.name
      end
    end
    for _, name in ipairs(trains and buffers or {}) do followed[name] = true end
  end
  return followed
end

local FORMATS = {[1] = "<I1", [2] = "<i1", [3] = "<i2", [4] = "<i4", [5] = "<i8", [12] = "<I1"}
local MOST_BYTES = 1 << 20

-- A tensor of whole numbers or bools, which must be a constant: all alike, or counted along its
-- dimensions.
local function constant_of(program, name, entry, kind)
  local path, meta = program.path, entry.tensor_meta
  local format = FORMATS[meta.dtype]
  if not format then fail("torch_export: %s is of a type that is not read", name) end
  local folder = program.weights[name] and "data/weights/" or "data/constants/"
  local bytes = core.archive_bytes(path, folder .. field(entry, "path_name", "string", path), MOST_BYTES)
    or fail("torch_export: %s has no values of %s", path, name)
  local shape, step, width = sizes_of(meta, path), {}, string.packsize(format)
  local first = field(field(meta, "storage_offset", "table", path), "as_int", "number", path)
  local strides = field(meta, "strides", "table", path)
  local function at(place)
    local from = (first + place) * width + 1
    if from < 1 or from + width - 1 > #bytes then fail("torch_export: %s is damaged: %s", path, name) end
    return (string.unpack(format, bytes, from))
  end
  local count = base.elements(shape)
  if count == 0 then fail("torch_export: %s has no elements", name) end
  local origin = at(0)
  for d = 1, #shape do step[d] = shape[d] > 1 and at(strides[d].as_int) - origin or 0 end
  for i = 0, count - 1 do
    local place, expected, rest = 0, origin, i
    for d = #shape, 1, -1 do
      local index = rest % shape[d]
      place, expected, rest = place + index * strides[d].as_int, expected + step[d] * index, rest // shape[d]
    end
    if at(place) ~= expected then
      fail("torch_export: the %s %s holds whole numbers in no simple order, which are not there yet",
        kind, name)
    end
  end
  return constants.counted(shape, TYPES[meta.dtype] or "int64", origin, step)
end

-- The inputs of the graph: by the graph's name the parameter's tensor, a constant's or a buffer's;
-- and the names of the user's inputs.
local function take_inputs(program, root, used)
  local followed = followed_buffers(program.graph)
  local path, values, inputs, shared, later, frozen, halves = program.path, {}, {}, {}, {}, {}, {}
  local specs = field(program.signature, "input_specs", "table", path)
  -- Of the names of one tensor the graph uses the last.
  for _, spec in ipairs(specs) do
    local kind, s = union(spec, path)
    if kind == "parameter" and used[s.arg.name] then
      local entry = program.weights[s.parameter_name]
      if type(entry) ~= "table" then fail("torch_export: %s has no values of %s", path, s.parameter_name) end
      later[place_of(entry)] = s.arg.name
    end
  end
  for _, spec in ipairs(specs) do
    local kind, s = union(spec, path)
    if kind == "parameter" or kind == "buffer" or kind == "tensor_constant" then
      local name = s.parameter_name or s.buffer_name or s.tensor_constant_name
      local entry = program.weights[name] or program.constants[name]
      if type(entry) ~= "table" then fail("torch_export: %s has no values of %s", path, name) end
      if entry.use_pickle then fail("torch_export: %s is a pickle in %s; none is read", name, path) end
      local meta, id = field(entry, "tensor_meta", "table", path), s.arg.name
      local kept = used[id] and (kind ~= "parameter" or later[place_of(entry)] == id)
      local floats = TYPES[meta.dtype] == "float32" or TYPES[meta.dtype] == "bfloat16"
      if kept and not floats then
        values[id] = constant_of(program, name, entry, kind)
      elseif kept then
        if kind ~= "parameter" and not followed[id] or meta.requires_grad == false then frozen[#frozen + 1] = id end
        local parent, own = parent_and_name(name)
        local tensor = core.parameter("torch_export", sizes_of(meta, path), "constant", 0.0, 0.0)
        local list = node_at(root, parent).parameters
        list[#list + 1] = {name = own, tensor = tensor}
        values[id] = tensor
        if TYPES[meta.dtype] == "bfloat16" then halves[id] = true end
        if kind == "parameter" then shared[place_of(entry)] = tensor end
      elseif kind == "parameter" and shared[place_of(entry)] then
        values[id] = shared[place_of(entry)]
      end
    elseif kind == "user_input" then
      local _, v = union(s.arg, path)
      inputs[#inputs + 1] = type(v) == "table" and v.name or false
    elseif kind == "constant_input" then
      inputs[#inputs + 1] = false
    else
      fail("torch_export: %s has an input of kind %s, which is not there", path, tostring(kind))
    end
  end
  for _, id in ipairs(frozen) do core.freeze(values[id], true) end
  return values, inputs, halves
end

-- ----------------------------------------------------------------------------------------- the nodes

-- "torch.ops.aten.add.Tensor" -> "add", "_operator.mul" stays.
local function short(target)
  local name = string.match(target, "^torch%.ops%.aten%.([^.]+)%.[^.]+$")
  return name or target
end

local IN_PLACE = {}

local function operator_of(target)
  local name = short(target)
  if operators[name] then return name end
  local base_name = string.match(name, "^(.-[^_])_$")
  if base_name and operators[base_name] then
    IN_PLACE[name] = true
    return base_name
  end
end

local GRAPH_CALLS = {
  ["torch.ops.higher_order.wrap_with_set_grad_enabled"] = 2,
  ["torch.ops.higher_order.wrap_with_autocast"] = 5,
}

-- The names of values that an argument mentions.
local function each_name(arg, f)
  local kind, v
  for key, held in pairs(arg) do kind, v = key, held end
  if kind == "as_tensor" then
    f(v.name)
  elseif (kind == "as_sym_int" or kind == "as_sym_float" or kind == "as_sym_bool") and v.as_name then
    f(v.as_name)
  elseif kind == "as_tensors" then
    for _, t in ipairs(v) do f(t.name) end
  elseif kind == "as_optional_tensors" or kind == "as_sym_ints" then
    for _, t in ipairs(v) do
      if t.as_tensor then f(t.as_tensor.name) elseif t.as_name then f(t.as_name) end
    end
  end
end

local function each_input(node, f)
  for _, input in ipairs(node.inputs) do each_name(input.arg, f) end
end

-- All operators that are missing, with counts and the Python line of the first.
local function check_operators(graph, path, missing)
  for _, node in ipairs(field(graph, "nodes", "table", path)) do
    local target = field(node, "target", "string", path)
    if GRAPH_CALLS[target] then
      for _, input in ipairs(field(node, "inputs", "table", path)) do
        if input.arg and input.arg.as_graph then
          check_operators(field(input.arg.as_graph, "graph", "table", path), path, missing)
        end
      end
    elseif not operator_of(target) then
      if not missing[target] then
        missing[target] = {count = 0, trace = node.metadata and node.metadata.stack_trace}
        missing[#missing + 1] = target
      end
      missing[target].count = missing[target].count + 1
    end
  end
  return missing
end

local function report_missing(missing, path)
  if #missing == 0 then return end
  local list = {}
  for i, target in ipairs(missing) do
    list[i] = string.format("%s (%d)", target, missing[target].count)
  end
  local trace = missing[missing[1]].trace
  local where = ""
  if type(trace) == "string" then
    local file, line = string.match(trace, '.*File "([^"]*)", line (%d+)')
    if file then where = string.format("; the first is from %s:%s", file, line) end
  end
  fail("torch_export: %s needs operators that are not there: %s%s", path,
    table.concat(list, ", "), where)
end

-- The nodes as nested calls: {path =, key =, items = {node or call ...}}.
local function nest(nodes)
  local root = {key = "", path = "", items = {}}
  local open = {root}
  for _, node in ipairs(nodes) do
    local stack = stack_of(node)
    local from = stack[1] and stack[1].path == "" and 2 or 1
    local depth = 1
    while open[depth + 1] and stack[from + depth - 1] and open[depth + 1].key == stack[from + depth - 1].key do
      depth = depth + 1
    end
    for i = #open, depth + 1, -1 do open[i] = nil end
    for i = from + depth - 1, #stack do
      local call = {key = stack[i].key, path = stack[i].path, items = {}}
      local above = open[#open].items
      above[#above + 1] = call
      open[#open + 1] = call
    end
    local items = open[#open].items
    items[#items + 1] = node
  end
  return root
end

-- Of each call: the names that it reads from outside, and its names that are read after it.
local function find_edges(root, outputs)
  local last_read, order = {}, 0
  local function number(call)
    call.first = order + 1
    for _, item in ipairs(call.items) do
      if item.items then
        number(item)
      else
        order = order + 1
        each_input(item, function(name) last_read[name] = order end)
      end
    end
    call.last = order
  end
  number(root)
  for _, name in ipairs(outputs) do last_read[name] = math.maxinteger end
  local function edges(call, above)
    call.reads, call.gives = {}, {}
    local made, seen = {}, {}
    local function visit(item)
      if item.items then
        for _, inner in ipairs(item.items) do visit(inner) end
        return
      end
      each_input(item, function(name)
        if not made[name] and not seen[name] then
          seen[name] = true
          call.reads[#call.reads + 1] = name
        end
      end)
      for _, out in ipairs(item.outputs) do
        each_name(out, function(name)
          made[name] = true
          if (last_read[name] or 0) > call.last then call.gives[#call.gives + 1] = name end
        end)
      end
    end
    for _, item in ipairs(call.items) do visit(item) end
    for _, item in ipairs(call.items) do
      if item.items then edges(item, call) end
    end
  end
  edges(root)
end

-- ------------------------------------------------------------------------------------------ running

local NON_FINITE = {Infinity = math.huge, ["-Infinity"] = -math.huge, NaN = 0 / 0}

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
    return TYPES[v] or fail("torch_export: %s has a tensor of type %s, which is not there", path, tostring(v))
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

local run_graph

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
  local target = node.target
  if GRAPH_CALLS[target] then return run_graph(node, values, path) end
  local a, name = {}, operator_of(target)
  for _, input in ipairs(node.inputs) do a[input.name] = decode(input.arg, values, path) end
  local constant, tensor = kinds_of(a)
  if constant and not tensor and on_constants[name] then
    local result = on_constants[name](a)
    if result then return result end
  end
  if constant and not base.torch_takes_constants[name] then as_tensors(a) end
  return operators[name](a)
end

-- The line of Python's that made the node, for messages.
local function python_line(node)
  local trace = node.metadata and node.metadata.stack_trace
  local file, line = string.match(type(trace) == "string" and trace or "", '.*File "([^"]*)", line (%d+)')
  return file and string.format(" (%s:%s)", file, line) or ""
end

-- Operators whose result shares its storage with `self`; and how a change of the result changes that.
local function inverse_by_shape(whole, part) return base.view(part, core.shape(whole)) end

-- `part` in the place of the elements first .. first + count - 1 of dimension d.
local function put_back(whole, part, d, first, count)
  local size, parts = core.shape(whole)[d + 1], {}
  if first > 0 then parts[1] = raw.narrow(whole, d, 0, first) end
  parts[#parts + 1] = part
  if first + count < size then parts[#parts + 1] = raw.narrow(whole, d, first + count, size - first - count) end
  return #parts == 1 and part or raw.cat(parts, d)
end

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
  local view = shared.view_of[name]
  values[name] = new
  shared.version[name] = (shared.version[name] or 0) + 1
  if not view then return end
  if not view.inverse then
    fail("torch_export: %s changes a view in place by a way that is not there: %s", path, view.target)
  end
  local whole = tensor_of(values[view.parent])
  change(view.parent, raw.to(view.inverse(whole, tensor_of(new), view.arguments), core.type(whole)),
    values, shared, path)
  view.version = shared.version[view.parent]
end

local function run_node(node, values, path)
  local shared, name = values[SHARED], operator_of(node.target)
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

-- A graph in a node's arguments, with names of its own.
function run_graph(node, values, path)
  local graph, given = nil, {}
  for _, input in ipairs(node.inputs) do
    if input.arg.as_graph then
      graph = input.arg.as_graph.graph
    elseif graph then
      given[#given + 1] = decode(input.arg, values, path)
    end
  end
  local inner = {}
  for i, input in ipairs(graph.inputs) do
    if input.as_tensor then inner[input.as_tensor.name] = given[i] end
  end
  if changes_in_place(graph.nodes) then inner[SHARED] = {view_of = {}, version = {}} end
  for _, n in ipairs(graph.nodes) do run_node(n, inner, path) end
  local results = {}
  for i, out in ipairs(graph.outputs) do
    local v = decode(out, inner, path)
    if core.is_tensor(v) then v = raw.detach(v) end
    results[i] = v
  end
  return table.unpack(results, 1, #graph.outputs)
end

-- What styles may speak of: the first tensors that are no parameters.
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

-- ------------------------------------------------------------------------------------- the function

local function names_used(graph)
  local used = {}
  for _, node in ipairs(graph.nodes) do each_input(node, function(name) used[name] = true end) end
  for _, out in ipairs(graph.outputs) do each_name(out, function(name) used[name] = true end) end
  return used
end

local function output_names(program)
  local names = {}
  for _, spec in ipairs(field(program.signature, "output_specs", "table", program.path)) do
    local kind, s = union(spec, program.path)
    if kind == "user_output" then
      if s.arg.as_tensor then names[#names + 1] = s.arg.as_tensor.name end
    elseif kind ~= "buffer_mutation" then
      fail("torch_export: %s has an output of kind %s, which is not there", program.path, tostring(kind))
    end
  end
  return names
end

-- ----------------------------------------------------------------------------------- symbolic sizes

-- The number that a size's expression stands for, as sympy writes it: Mul(Symbol('s27', ...), ...).
local EXPRESSIONS = {
  Mul = function(v) local n = 1 for _, x in ipairs(v) do n = n * x end return n end,
  Add = function(v) local n = 0 for _, x in ipairs(v) do n = n + x end return n end,
  Pow = function(v) return math.tointeger(v[1] ^ v[2]) or v[1] ^ v[2] end,
  FloorDiv = function(v) return v[1] // v[2] end,
  IntTrueDiv = function(v) return v[1] / v[2] end,
  Mod = function(v) return v[1] % v[2] end,
  Max = function(v) return math.max(table.unpack(v)) end,
  Min = function(v) return math.min(table.unpack(v)) end,
  Integer = function(v) return v[1] end,
}

local MOST_DEPTH = 64

-- Evaluates the text from `at` on; returns the number and where it ends. nil: it is no expression
-- that is known here.
local function evaluate(text, at, symbols, depth)
  if depth > MOST_DEPTH then return nil end
  local number, after = string.match(text, "^(-?%d+)()", at)
  if number then return math.tointeger(number), after end
  local symbol, rest = string.match(text, "^Symbol%('([%w_]+)'[^)]*%)()", at)
  if symbol then return symbols[symbol], rest end
  local name, inside = string.match(text, "^(%a+)%(()", at)
  if not name or not EXPRESSIONS[name] then return nil end
  local values = {}
  at = inside
  while string.sub(text, at, at) ~= ")" do
    local v, next_at = evaluate(text, at, symbols, depth + 1)
    if v == nil or not next_at then return nil end
    values[#values + 1] = v
    at = string.match(text, "^[, ]*()", next_at)
    if at > #text then return nil end
  end
  return EXPRESSIONS[name](values), at + 1
end

-- A size of tensor_values: {as_int =} or {as_expr = {expr_str =, hint =}}.
local function size_of(s, symbols, path)
  if type(s) == "table" and math.type(s.as_int) == "integer" then return s.as_int end
  local e = type(s) == "table" and s.as_expr
  if type(e) ~= "table" or type(e.expr_str) ~= "string" then
    fail("torch_export: %s is damaged: a size is neither a number nor an expression", path)
  end
  local v = evaluate(e.expr_str, 1, symbols, 1)
  if math.type(v) ~= "integer" then
    fail("torch_export: %s has a size that is not known: %.80s", path, e.expr_str)
  end
  return v
end

local function meta_of(program, name)
  return field(field(program.graph, "tensor_values", "table", program.path), name, "table", program.path)
end

-- The symbols of the sizes, with the numbers of the example that was exported, unless `given` has
-- others: under the symbol's name, or `batch` for the one that is the first size of the first input.
local function find_symbols(program, inputs, given)
  local symbols, batch, known = {}, nil, {batch = true}
  for i, name in ipairs(inputs) do
    for d, s in ipairs(name and field(meta_of(program, name), "sizes", "table", program.path) or {}) do
      local e = s.as_expr
      local symbol = type(e) == "table" and type(e.expr_str) == "string"
        and string.match(e.expr_str, "^Symbol%('([%w_]+)'")
      if symbol then
        symbols[symbol] = symbols[symbol] or e.hint and e.hint.as_int
        known[symbol] = true
        if i == 1 and d == 1 then batch = symbol end
      end
    end
  end
  for name, value in pairs(given or {}) do
    if not known[name] then
      fail("torch_export: %s has no symbolic size '%s'", program.path, tostring(name))
    end
    value = base.integer(value, "torch_export's " .. name, 1, 1 << 40)
    if name ~= "batch" then
      symbols[name] = value
    elseif batch then
      symbols[batch] = value
    elseif value ~= field(meta_of(program, inputs[1]), "sizes", "table", program.path)[1].as_int then
      fail("torch_export: %s was exported for a batch of %d alone: export it with dynamic_shapes for "
        .. "the first dimension", program.path, meta_of(program, inputs[1]).sizes[1].as_int)
    end
  end
  return symbols
end

-- ------------------------------------------------------------------------------- what it takes, gives

-- Operators whose result holds the numbers of their input.
local SAME_NUMBERS = {view = true, reshape = true, to = true, _to_copy = true, alias = true,
  contiguous = true, unsqueeze = true, expand = true, clone = true, flatten = true}

-- Of a user's input that is indices of an embedding: their least bound.
local function find_bounds(program, symbols)
  local from, below = {}, {}
  for _, node in ipairs(program.graph.nodes) do
    local name, a = short(node.target), {}
    for _, input in ipairs(node.inputs) do
      local tensor = input.arg.as_tensor
      if tensor then a[input.name] = tensor.name end
    end
    if SAME_NUMBERS[name] and a.self and node.outputs[1] and node.outputs[1].as_tensor then
      from[node.outputs[1].as_tensor.name] = from[a.self] or a.self
    elseif name == "embedding" then
      local input = from[a.indices] or a.indices
      local rows = size_of(meta_of(program, a.weight).sizes[1], symbols, program.path)
      below[input] = math.min(below[input] or rows, rows)
    end
  end
  return below
end

local function described(program, names, symbols)
  local below, list = find_bounds(program, symbols), {}
  for i, name in ipairs(names) do
    if name then
      local meta, shape = meta_of(program, name), {}
      for d, s in ipairs(field(meta, "sizes", "table", program.path)) do
        shape[d] = size_of(s, symbols, program.path)
      end
      list[#list + 1] = {name = name, shape = shape, below = below[name],
        dtype = TYPES[meta.dtype] or fail("torch_export: %s has a tensor %s of type %s, which is not "
          .. "there", program.path, name, tostring(meta.dtype))}
    end
  end
  return list
end

-- The modules that hold weights: {path =, kind = "Linear", "Embedding", or their class's name}.
local function listed_modules(root)
  local list = {}
  local function visit(node, path)
    if #node.parameters > 0 then
      list[#list + 1] = {path = path, class = node.class and last_part(node.class) or "Module"}
    end
    for _, name in ipairs(node.order) do
      visit(node.children[name], path == "" and name or path .. "." .. name)
    end
  end
  visit(root, "")
  return list
end

local function lists_of(modules)
  local paths = {}
  for path, m in pairs(modules) do
    if base.class(m) == base.ModuleList then paths[#paths + 1] = path end
  end
  table.sort(paths)
  return paths
end

-- --------------------------------------------------------------------------------------- the function

-- torch_export(path, {batch = 8}): the module, and what it takes and gives. Its forward takes the
-- exported inputs in their order, and returns the outputs. The second table gives sizes that were
-- exported as symbols. The second result: {inputs = {{name =, shape =, dtype =, below =} ...},
-- outputs = the same, modules = {{path =, class =} ...}: those that hold weights, lists = {path ...}:
-- of the ModuleLists}.
plan.torch_export = core.unwatched(function(path, sizes)
  base.expect(path, "string", "the path that torch_export is given")
  if sizes ~= nil then base.expect(sizes, "table", "the sizes that torch_export is given") end
  if base.begun then fail("torch_export comes before train and infer") end
  local program = read(path)
  report_missing(check_operators(program.graph, path, {}), path)
  local root, outputs = new_node(), output_names(program)
  local parameters, inputs, halves = take_inputs(program, root, names_used(program.graph))
  for _, node in ipairs(program.graph.nodes) do
    for _, entry in ipairs(stack_of(node)) do
      if entry.path ~= "" then node_at(root, entry.path).class = entry.class else root.class = entry.class end
    end
  end
  local symbols = find_symbols(program, inputs, sizes)
  local about = {inputs = described(program, inputs, symbols),
    outputs = described(program, outputs, symbols), modules = listed_modules(root)}
  core.weights_of(path)
  local modules = {}
  local self = build(root, modules, "")
  about.lists = lists_of(modules)
  local calls = nest(program.graph.nodes)
  find_edges(calls, outputs)
  function self.forward(_, ...)
    local given, values = table.pack(...), {}
    for name, tensor in pairs(parameters) do
      values[name] = halves[name] and raw.to(tensor, "bfloat16") or tensor
    end
    local n = 0
    for _, name in ipairs(inputs) do
      if name then
        n = n + 1
        values[name] = given[n]
        local want = about.inputs[n]
        if not core.is_tensor(given[n]) or not base.same_shape(core.shape(given[n]), want.shape) then
          fail("torch_export: input '%s' of %s has the shape %s", want.name, path,
            base.shape_text(want.shape))
        end
      end
    end
    if given.n ~= n then
      fail("torch_export: the model of %s takes %d inputs, not %d", path, n, given.n)
    end
    if changes_in_place(program.graph.nodes) then values[SHARED] = {view_of = {}, version = {}} end
    run_call(calls, modules, parameters, values, path)
    local results = {}
    for i, name in ipairs(outputs) do
      if values[SHARED] then up_to_date(name, values, values[SHARED]) end
      local v = values[name]
      results[i] = constants.is(v) and constants.tensor(v) or v
    end
    return table.unpack(results, 1, #outputs)
  end
  return self, about
end)
