-- modules.lua: the modules and parameters of an exported program.
local core, base = ...
local fail, constants, torch = base.fail, base.constants, base.torch
local TYPES, field, union = torch.TYPES, torch.field, torch.union

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

-- A node without the text is of the module of its neighbours: of what both of them belong to, or of the one that has it.
local function fill_stacks(nodes)
  local function has(node) return node.metadata and type(node.metadata.nn_module_stack) == "string" end
  local behind, last = {}, nil
  for i = #nodes, 1, -1 do
    if has(nodes[i]) then last = nodes[i].metadata.nn_module_stack end
    behind[i] = last
  end
  local before
  for i, node in ipairs(nodes) do
    if has(node) then
      before = node.metadata.nn_module_stack
    elseif before or behind[i] then
      local a, b, common = before or behind[i], behind[i] or before, {}
      local other = string.gmatch(b, "[^;]+")
      for entry in string.gmatch(a, "[^;]+") do
        if entry ~= other() then break end
        common[#common + 1] = entry
      end
      local metadata = {nn_module_stack = table.concat(common, ";")}
      node.metadata = setmetatable(metadata, {__index = node.metadata})
    end
  end
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

-- Classes of PyTorch that the styles know. A Linear is also what is used as one (name_linear_layers).
local LINEAR = "torch.nn.modules.linear.Linear"
local KNOWN = {
  [LINEAR] = {class = base.Linear, name = "Linear"},
  ["transformers.pytorch_utils.Conv1D"] = {class = base.Conv1D, name = "Conv1D"},
  ["torch.nn.modules.activation.MultiheadAttention"] = {class = base.MultiheadAttention, name = "MultiheadAttention"},
  ["torch.nn.modules.sparse.Embedding"] = {class = base.Embedding, name = "Embedding"},
}

-- Modules whose weight is that of linear layers, by its path, and which have no more but a bias, are a Linear: a
-- class derived from it, or one that the program never calls.
local function name_linear_layers(root, is_linear)
  local function visit(node, path)
    local only = #node.parameters > 0 and #node.order == 0 and not KNOWN[node.class]
    for _, p in ipairs(node.parameters) do
      only = only and (p.name == "bias" or p.name == "weight" and is_linear[path .. "weight"] == true)
    end
    if only and is_linear[path .. "weight"] then node.class = LINEAR end
    for _, name in ipairs(node.order) do visit(node.children[name], path .. name .. ".") end
  end
  visit(root, "")
end

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
      or fail("torch_export: %s is damaged: a parameter's size is not a number", path)
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

local FORMATS = {[1] = "<I1", [2] = "<i1", [3] = "<i2", [4] = "<i4", [5] = "<i8", [12] = "<I1"}
local MOST_BYTES = 1 << 20

-- A function that gives the elements in row-major order, as numbers.
local function elements_of(program, name, entry, format)
  local path, meta = program.path, entry.tensor_meta
  local folder = program.weights[name] and "data/weights/" or "data/constants/"
  local bytes = core.archive_bytes(path, folder .. entry.path_name, MOST_BYTES)
    or fail("torch_export: %s has no values of %s", path, name)
  local shape, width = sizes_of(meta, path), string.packsize(format)
  return function(i)
    local place = meta.storage_offset.as_int
    for d = #shape, 1, -1 do
      place, i = place + i % shape[d] * meta.strides[d].as_int, i // shape[d]
    end
    if place < 0 or place >= #bytes // width then fail("torch_export: %s is damaged: %s", path, name) end
    return (string.unpack(format, bytes, place * width + 1))
  end
end

-- Elements that count along the dimensions, as a constant; else nil.
local function counted_constant(shape, at, kind)
  local step, origin, stride = {}, at(0), 1
  for d = #shape, 1, -1 do
    step[d] = shape[d] > 1 and at(stride) - origin or 0
    stride = stride * shape[d]
  end
  for i = 0, base.elements(shape) - 1 do
    local expected, rest = origin, i
    for d = #shape, 1, -1 do
      expected, rest = expected + step[d] * (rest % shape[d]), rest // shape[d]
    end
    if at(i) ~= expected then return nil end
  end
  return constants.counted(shape, kind, origin, step)
end

-- A bool that depends only on the distance of the last two indices, such as a causal mask; else nil.
local function banded_constant(shape, at)
  local rows, columns = shape[#shape - 1], shape[#shape]
  if not rows or base.elements(shape) ~= rows * columns then return nil end
  local first = at(0)
  local edge = 1
  while edge < columns and at(edge) == first do edge = edge + 1 end
  for y = 0, rows - 1 do
    for x = 0, columns - 1 do
      if (at(y * columns + x) == first) ~= (x - y < edge) then return nil end
    end
  end
  return constants.band(shape, edge, first ~= 0)
end

-- A tensor of whole numbers or bools: a constant that has a form of its own, or nil.
local function constant_of(program, name, entry)
  local meta = entry.tensor_meta
  local format = FORMATS[meta.dtype]
    or fail("torch_export: %s of %s is of type %s, which is not read", name, program.path, torch.type_name(meta.dtype))
  local shape = sizes_of(meta, program.path)
  local count = base.elements(shape)
  if count == 0 then fail("torch_export: %s has no elements", name) end
  if count * string.packsize(format) > MOST_BYTES then return nil end
  local at = elements_of(program, name, entry, format)
  local found = counted_constant(shape, at, TYPES[meta.dtype] or "int64")
  if found or meta.dtype == 12 then return found or banded_constant(shape, at) end
  -- The program reads others as floats.
  for i = 0, count - 1 do
    if math.abs(at(i)) > 1 << 24 then fail("torch_export: %s holds a number above 2^24, which is not supported", name) end
  end
end

-- The names of the user's inputs; false for one that is a number.
local function user_inputs(program)
  local inputs = {}
  for _, spec in ipairs(field(program.signature, "input_specs", "table", program.path)) do
    local kind, s = union(spec, program.path)
    if kind == "user_input" then
      local _, v = union(s.arg, program.path)
      inputs[#inputs + 1] = type(v) == "table" and v.name or false
    elseif kind == "constant_input" then
      inputs[#inputs + 1] = false
    end
  end
  return inputs
end

-- The inputs of the graph: by the graph's name the parameter's tensor, a constant's or a buffer's; and the
-- types of tensors that are kept as floats and are no floats.
local function take_inputs(program, root, used)
  local path, values, shared, later, others = program.path, {}, {}, {}, {}
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
      local sizes = sizes_of(meta, path)
      local empty = base.elements(sizes) == 0
      local kept = used[id] and not empty and (kind ~= "parameter" or later[place_of(entry)] == id)
      local floats = TYPES[meta.dtype] == "float32" or TYPES[meta.dtype] == "bfloat16" or meta.dtype == torch.COMPLEX
      if meta.dtype == torch.COMPLEX then sizes[#sizes + 1] = 2 end
      local known = kept and not floats and constant_of(program, name, entry)
      if known then
        values[id] = known
      elseif empty then
        values[id] = constants.full(sizes, 0, TYPES[meta.dtype] or "float32")
      elseif kept then
        local parent, own = parent_and_name(name)
        local tensor = core.parameter("torch_export", sizes, "constant", 0.0, 0.0)
        local list = node_at(root, parent).parameters
        list[#list + 1] = {name = own, tensor = tensor}
        values[id] = tensor
        if kind ~= "parameter" then
          core.make_buffer(tensor)
        elseif meta.requires_grad == false then
          core.freeze(tensor, true)
        end
        local own_type = TYPES[meta.dtype] or meta.dtype == torch.COMPLEX and "complex64" or "int32"
        if own_type ~= "float32" then others[id] = own_type end
        if kind == "parameter" then shared[place_of(entry)] = tensor end
      elseif kind == "parameter" and shared[place_of(entry)] then
        values[id] = shared[place_of(entry)]
      end
    elseif kind ~= "user_input" and kind ~= "constant_input" then
      fail("torch_export: %s has an input of kind %s, which is not supported", path, tostring(kind))
    end
  end
  return values, others
end

-- By the graph's name: the parameters that require a gradient.
local function trained_parameters(program)
  local trained = {}
  for _, spec in ipairs(program.signature.input_specs) do
    local s = spec.parameter
    local entry = s and program.weights[s.parameter_name]
    if entry and entry.tensor_meta.requires_grad ~= false then trained[s.arg.name] = true end
  end
  return trained
end

-- Inputs of the graph that share elements in memory: by the graph's name another one's name in the model.
local function inputs_in_one_memory(program)
  local by_file, twins = {}, {}
  for _, spec in ipairs(program.signature.input_specs) do
    for _, kind in ipairs{"parameter", "buffer", "tensor_constant"} do
      local s = spec[kind]
      local name = s and s[kind .. "_name"]
      local entry = name and (program.weights[name] or program.constants[name])
      if entry then
        local meta, extent = entry.tensor_meta, 1
        for d, size in ipairs(meta.sizes) do extent = extent + (size.as_int - 1) * meta.strides[d].as_int end
        local own = {name = name, arg = s.arg.name, first = meta.storage_offset.as_int, extent = extent}
        local file = entry.path_name
        by_file[file] = by_file[file] or {}
        for _, other in ipairs(by_file[file]) do
          if own.first < other.first + other.extent and other.first < own.first + own.extent then
            twins[own.arg], twins[other.arg] = other.name, own.name
          end
        end
        table.insert(by_file[file], own)
      end
    end
  end
  return twins
end

torch.trained_parameters, torch.inputs_in_one_memory = trained_parameters, inputs_in_one_memory
torch.fill_stacks = fill_stacks
torch.stack_of, torch.new_node, torch.node_at, torch.build = stack_of, new_node, node_at, build
torch.name_linear_layers = name_linear_layers
torch.last_part, torch.user_inputs, torch.take_inputs = last_part, user_inputs, take_inputs
