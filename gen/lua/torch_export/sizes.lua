-- sizes.lua: the sizes of an exported program, which may be symbols; and its inputs and outputs.
local _, base = ...
local fail, torch = base.fail, base.torch
local TYPES, field, short, last_part = torch.TYPES, torch.field, torch.short, torch.last_part

-- The value of a size's expression, as sympy writes it: Mul(Symbol('s27', ...), ...).
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

local NAMED = {batch = 1, tokens = 2}

-- The symbols of the sizes, with the numbers of the example that was exported, unless `given` has
-- others: under the symbol's name, `batch` for the one that is the first size of the first input, or `tokens` for the
-- one that is its second size.
local function find_symbols(program, inputs, given)
  local symbols, named, known = {}, {}, {batch = true, tokens = true}
  for i, name in ipairs(inputs) do
    for d, s in ipairs(name and field(meta_of(program, name), "sizes", "table", program.path) or {}) do
      local e = s.as_expr
      local symbol = type(e) == "table" and type(e.expr_str) == "string"
        and string.match(e.expr_str, "^Symbol%('([%w_]+)'")
      if symbol then
        symbols[symbol] = symbols[symbol] or e.hint and e.hint.as_int
        known[symbol] = true
        for key, dim in pairs(NAMED) do
          if i == 1 and d == dim then named[key] = symbol end
        end
      end
    end
  end
  for name, value in pairs(given or {}) do
    if not known[name] then
      fail("torch_export: %s has no symbolic size '%s'", program.path, tostring(name))
    end
    value = base.integer(value, "torch_export's " .. name, 1, 1 << 40)
    local dim = NAMED[name]
    if not dim then
      symbols[name] = value
    elseif named[name] then
      symbols[named[name]] = value
    else
      local size = field(meta_of(program, inputs[1]), "sizes", "table", program.path)[dim]
      if not size or value ~= size.as_int then
        fail("torch_export: %s was exported for %s only: export it with dynamic_shapes for the %s dimension",
          program.path, string.format(dim == 1 and "a batch of %s" or "texts of %s tokens", size and size.as_int or "?"),
          dim == 1 and "first" or "second")
      end
    end
  end
  return symbols
end

-- ------------------------------------------------------------------------------- what it takes, gives

-- Operators whose result holds the numbers of their input.
local SAME_NUMBERS = {view = true, reshape = true, to = true, _to_copy = true, alias = true,
  contiguous = true, unsqueeze = true, expand = true, clone = true, flatten = true}

-- Of a user's input that is indices of an embedding, or labels: their least bound.
local function find_bounds(program, symbols)
  local from, below = {}, {}
  -- The value is indices of dimension d of another, or of its last one.
  local function bound(indices, of, d)
    local input, sizes = from[indices] or indices, field(meta_of(program, of), "sizes", "table", program.path)
    local size = sizes[math.min(d, #sizes)]
    local rows = size and size_of(size, symbols, program.path)
    below[input] = rows and math.min(below[input] or rows, rows)
  end
  for _, node in ipairs(program.graph.nodes) do
    local name, a = short(node.target), {}
    for _, input in ipairs(node.inputs) do
      local tensor = input.arg.as_tensor
      if tensor then a[input.name] = tensor.name end
    end
    if SAME_NUMBERS[name] and a.self and node.outputs[1] and node.outputs[1].as_tensor then
      from[node.outputs[1].as_tensor.name] = from[a.self] or a.self
    elseif name == "embedding" and a.indices and a.weight then
      bound(a.indices, a.weight, 1)
    elseif (name == "cross_entropy_loss" or name == "nll_loss" or name == "nll_loss_nd") and a.self and a.target then
      bound(a.target, a.self, 2)
    end
  end
  return below
end

local SMALL = {"int32", "int32", "int32"} -- uint8, int8, int16

local function described(program, names, symbols)
  local below, list = find_bounds(program, symbols), {}
  for i, name in ipairs(names) do
    if name then
      local meta, shape = meta_of(program, name), {}
      for d, s in ipairs(field(meta, "sizes", "table", program.path)) do
        shape[d] = size_of(s, symbols, program.path)
      end
      list[#list + 1] = {name = name, shape = shape, below = below[name],
        dtype = TYPES[meta.dtype] or SMALL[meta.dtype] or fail("torch_export: %s has an input or output %s of type "
          .. "%s, which is not supported", program.path, name, torch.type_name(meta.dtype))}
    end
  end
  return list
end

-- The modules that hold weights: {path =, class = "Linear", "Embedding", or their class's name, parts =}.
-- parts: of the outputs of a weight, by its path.
local function listed_modules(root, parts)
  local list = {}
  local function visit(node, path)
    if #node.parameters > 0 then
      local entry = {path = path, class = node.class and last_part(node.class) or "Module"}
      for _, p in ipairs(node.parameters) do
        entry.parts = entry.parts or parts[path == "" and p.name or path .. "." .. p.name] or nil
      end
      list[#list + 1] = entry
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
-- The sizes of a value of the graph, by its name.
local function sizes_by_name(program, symbols)
  local known = {}
  return function(name)
    if not known[name] then
      local sizes = {}
      for d, s in ipairs(field(meta_of(program, name), "sizes", "table", program.path)) do
        sizes[d] = size_of(s, symbols, program.path)
      end
      known[name] = sizes
    end
    return known[name]
  end
end

local function types_by_name(program)
  return function(name) return meta_of(program, name).dtype end
end

-- The memory of a value in the archive, by its name: {sizes =, strides =, offset =, type =}; nil: unknown, as for
-- a value that is not the archive's.
local function layouts_by_name(program, symbols)
  local path = program.path
  return function(name)
    local meta = program.graph.tensor_values[name]
    if type(meta) ~= "table" or type(meta.strides) ~= "table" or type(meta.sizes) ~= "table" then return nil end
    local layout = {sizes = {}, strides = {}, offset = 0, type = meta.dtype}
    for d, s in ipairs(meta.sizes) do layout.sizes[d] = size_of(s, symbols, path) end
    for d, s in ipairs(meta.strides) do layout.strides[d] = size_of(s, symbols, path) end
    if #layout.sizes ~= #layout.strides then return nil end
    if meta.storage_offset ~= nil then layout.offset = size_of(meta.storage_offset, symbols, path) end
    return layout
  end
end

torch.sizes_by_name, torch.types_by_name, torch.layouts_by_name = sizes_by_name, types_by_name, layouts_by_name
torch.find_symbols, torch.described = find_symbols, described
torch.listed_modules, torch.lists_of = listed_modules, lists_of
