-- archive.lua: the texts of an archive that torch.export saved. An archive is as hostile as its
-- author: each field is looked at here before another file uses it.
local core, base = ...
local fail = base.fail

local torch = {}
base.torch = torch

local SCHEMA = 8 -- the major version of the schema that is read here
local TYPES = {[4] = "int32", [5] = "int64", [6] = "float32", [7] = "float32", [8] = "float32", [12] = "bool",
  [13] = "bfloat16"}
local COMPLEX = 10 -- complex64: two floats
-- PyTorch's names of types that have another one here, or none.
local NAMES = {"uint8", "int8", "int16", [6] = "float16", [8] = "float64", [9] = "complex32", [10] = "complex64",
  [11] = "complex128", [28] = "uint16", [29] = "float8_e4m3fn", [30] = "float8_e5m2"}
local function type_name(number) return TYPES[number] and not NAMES[number] and TYPES[number] or NAMES[number] or tostring(number) end

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

-- The kinds of arguments, and the content of each.
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

-- The only key of a union, and its content.
local function union(u, path)
  if type(u) ~= "table" then fail("torch_export: %s is damaged: an argument is not an object", path) end
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
  if not KINDS[kind] then fail("torch_export: %s has an argument of kind %s, which is not supported", path, tostring(kind)) end
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

torch.COMPLEX, torch.type_name = COMPLEX, type_name
torch.TYPES, torch.field, torch.damaged, torch.union, torch.read = TYPES, field, damaged, union, read
