-- parts.lua: which weights of an exported program are those of linear layers, whatever the module's class is;
-- and which make several things at once, as q, k and v: a projection whose result is read in parts along its outputs.
-- A style cuts each part by itself.
local _, base = ...
local torch = base.torch
local short, each_name, each_input = torch.short, torch.each_name, torch.each_input

local MOST_PARTS = 8 -- as Colwise{parts =} takes

-- The same elements in the same order, and the same dimensions.
local SAME = {contiguous = true, clone = true, alias = true}
local VIEWS = {view = true, reshape = true, _unsafe_view = true, unflatten = true, flatten = true, unsqueeze = true,
  squeeze = true}
local TRANSPOSES = {t = true, transpose = true, permute = true, numpy_T = true}

local function argument(node, key)
  for _, input in ipairs(node.inputs) do
    if input.name == key then return input.arg end
  end
end

local function tensor(node, key)
  local arg = argument(node, key)
  return arg and arg.as_tensor and arg.as_tensor.name
end

local function whole(node, key)
  local arg = argument(node, key)
  return arg and math.type(arg.as_int) == "integer" and arg.as_int or nil
end

local function results(node)
  local names = {}
  for _, out in ipairs(node.outputs) do each_name(out, function(name) names[#names + 1] = name end) end
  return names
end

-- Where dimension d of n, from 0, is after a transposition; or nil.
local function transposed(node, d, n)
  local operator = short(node.target)
  if operator == "permute" then
    local dims = argument(node, "dims")
    for i, from in ipairs(dims and dims.as_ints or {}) do
      if from % n == d then return i - 1 end
    end
    return nil
  end
  local a, b = 0, 1
  if operator == "transpose" then a, b = whole(node, "dim0"), whole(node, "dim1") end
  if not a or not b or n == 0 then return nil end
  a, b = a % n, b % n
  return d == a and b or d == b and a or d
end

local Search = {}
Search.__index = Search

-- Adds the outputs from `first` on, `count` of them, each of `unit` outputs of the projection.
local function add_cut(cuts, first, count, unit)
  cuts[first * unit] = cuts[first * unit] or count * unit
  return cuts[first * unit] == count * unit
end

-- The nodes that read a part: slices, and nodes that make several parts at once. False: it reads something else.
function Search:cut(node, d, unit, shape, cuts)
  local operator, dim = short(node.target), whole(node, "dim") or 0
  if #shape == 0 or dim % #shape ~= d then return false end
  local size = shape[d + 1]
  if operator == "select" then
    local index = whole(node, "index")
    return index ~= nil and add_cut(cuts, index < 0 and index + size or index, 1, unit)
  elseif operator == "slice" then
    if (whole(node, "step") or 1) ~= 1 then return false end
    local first, count = torch.slice_of(size, whole(node, "start"), whole(node, "end"))
    return count > 0 and add_cut(cuts, first, count, unit)
  end
  local first, ok = 0, true
  for _, name in ipairs(results(node)) do
    local part = self.shape_of(name)
    local count = operator == "unbind" and 1 or part[d + 1]
    ok = ok and count ~= nil and add_cut(cuts, first, count, unit)
    first = first + (count or 0)
  end
  return ok
end

local CUTS = {select = true, slice = true, split = true, split_with_sizes = true, chunk = true, unbind = true}

-- Goes on from the value, whose dimension d has the projection's outputs, `unit` of them in one place. False:
-- something reads them that reads no part.
function Search:follow(name, d, unit, cuts)
  local readers, shape = self.readers[name], self.shape_of(name)
  if not readers or self.is_output[name] then return false end
  for _, node in ipairs(readers) do
    local operator = short(node.target)
    if tensor(node, "self") ~= name or torch.changes(node) then return false end
    local to, by = nil, 1
    if CUTS[operator] then
      if not self:cut(node, d, unit, shape, cuts) then return false end
    else
      local new = results(node)[1]
      if SAME[operator] then
        to = d
      elseif TRANSPOSES[operator] then
        to = transposed(node, d, #shape)
      elseif VIEWS[operator] then
        to, by = base.dimension_in_view(shape, d, self.shape_of(new))
      end
      if not to or not self:follow(new, to, unit * by, cuts) then return false end
    end
  end
  return true
end

-- The sizes of the parts, if they are all of n outputs.
local function sizes_of(cuts, n)
  local sizes, at = {}, 0
  while at < n and cuts[at] and #sizes < MOST_PARTS do
    sizes[#sizes + 1] = cuts[at]
    at = at + cuts[at]
  end
  for first in pairs(cuts) do
    if first > at then return nil end
  end
  local count = 0
  for _ in pairs(cuts) do count = count + 1 end
  return at == n and #sizes > 1 and #sizes == count and sizes or nil
end

local OPERANDS = {linear = "weight", mm = "mat2", addmm = "mat2", matmul = "other"}

-- The parameter whose outputs `first` to first + count - 1, [out, in], are the value: its path, first and count; nil:
-- it is no such part. Of the whole parameter, or of one stored as [in, out], first is 0.
function Search:part_of_parameter(name, like)
  local path, made = self.parameters[name], self.makers[name]
  if path then return path, 0, self.shape_of(name)[like] end
  if not made or not CUTS[short(made.target)] or short(made.target) == "select" then return nil end
  local dim = whole(made, "dim") or 0
  local from = tensor(made, "self")
  local n = from and #self.shape_of(from) or 0
  if n == 0 or not self.parameters[from] or like ~= 1 or dim % n ~= 0 then return nil end
  if short(made.target) == "slice" then
    if (whole(made, "step") or 1) ~= 1 then return nil end
    return self.parameters[from], torch.slice_of(self.shape_of(from)[1], whole(made, "start"), whole(made, "end"))
  end
  local first = 0
  for _, part in ipairs(results(made)) do
    local count = self.shape_of(part)[1]
    if part == name then return self.parameters[from], first, count end
    first = first + count
  end
end

-- The weight of a projection: the path of the parameter, the first output of the part of it, and how many; nil:
-- no parameter. And whether it is [out, in].
function Search:weight_of(node)
  local operator = short(node.target)
  local name = OPERANDS[operator] and tensor(node, OPERANDS[operator])
  local made = name and self.makers[name]
  local is_transposed = made and TRANSPOSES[short(made.target)] and #self.shape_of(name) == 2 and operator ~= "linear"
  if is_transposed then name = tensor(made, "self") end
  if not name then return nil end
  local is_linear = operator == "linear" or is_transposed
  local path, first, count = self:part_of_parameter(name, is_linear and 1 or #self.shape_of(name))
  return path, is_linear or false, first, count
end

-- The outputs from `first` on, `count` of them, that a projection makes are read in the parts of `cuts`, or as one.
local function add_use(use, first, count, cuts)
  local sizes = cuts and sizes_of(cuts, count)
  if not sizes and first == 0 and count == use.outputs then return false end
  for _, size in ipairs(sizes or {count}) do
    if not add_cut(use.cuts, first, size, 1) then return false end
    first = first + size
  end
  return true
end

-- By the path of a parameter: the sizes of its parts; and whether it is the weight of linear layers only. parameters:
-- paths by their names in the graph.
function torch.find_parts(nodes, outputs, parameters, shape_of)
  local s = setmetatable({readers = {}, makers = {}, is_output = {}, parameters = parameters, shape_of = shape_of},
    Search)
  for _, name in ipairs(outputs) do s.is_output[name] = true end
  for _, node in ipairs(nodes) do
    for _, name in ipairs(results(node)) do s.makers[name] = node end
    each_input(node, function(name)
      s.readers[name] = s.readers[name] or {}
      table.insert(s.readers[name], node)
    end)
  end
  local outputs_of = {}
  for name, path in pairs(parameters) do outputs_of[path] = name end
  local uses, found, linear = {}, {}, {}
  for _, node in ipairs(nodes) do
    local path, is_linear, first, count = s:weight_of(node)
    if path then linear[path] = is_linear and linear[path] ~= false end
    if path and short(node.target) ~= "matmul" and uses[path] ~= false then
      local shape = shape_of(outputs_of[path])
      local use = uses[path] or {outputs = shape[is_linear and 1 or #shape], cuts = {}}
      local result, cuts = results(node)[1], {}
      local is_cut = #shape_of(result) > 0 and s:follow(result, #shape_of(result) - 1, 1, cuts)
      uses[path] = use.outputs and count and add_use(use, first, count, is_cut and cuts) and use or false
    end
  end
  for path, use in pairs(uses) do found[path] = use and sizes_of(use.cuts, use.outputs) or false end
  return found, linear
end
