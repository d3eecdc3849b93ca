-- experts.lua: a mixture of experts as transformers exports it: places sorted by expert, products of groups of rows, and back
-- to the order of tokens. Its nodes become the operators for rows by expert (ir/row_ops.h). These sort nothing: by their rules
-- each token's experts depend on its own numbers only.
--
--   ids, weights [tokens, k]; x [tokens, size]
--   sorted, order = sort(ids.flatten())           counts = count_places(ids)
--   rows = x[order // k]                          rows = dispatch(x, ids, counts)
--   grouped_mm(rows, matrices, cumsum(histc(sorted)))   grouped_linear(rows, matrices, counts)
--   (rows * weights.flatten()[order])[inverse of order].view(tokens, k, size).sum(1)
--                                                 combine(rows, ids, weights, counts)
--
--   grouped_mm(...) + biases[sorted]              add_expert_bias(grouped_linear(...), biases, ids, counts)
--
-- Between them the rows go through operators of each element, and parts of rows. Anything else stays as it was exported.
local core, base = ...
local torch, raw, view = base.torch, base.raw, base.view
local short, each_name, operators = torch.short, torch.each_name, base.torch_operators

local RESHAPES = {reshape = true, view = true, flatten = true, _unsafe_view = true}
local BY_ELEMENT = {to = true, _to_copy = true, silu = true, gelu = true, relu = true, sigmoid = true, tanh = true,
  alias = true, clone = true, mul = true, add = true, sub = true, clamp = true, neg = true}

local function argument(node, key)
  for _, input in ipairs(node.inputs) do
    if input.name == key then return input.arg end
  end
end

local function tensor(node, key)
  local arg = argument(node, key)
  return arg and arg.as_tensor and arg.as_tensor.name
end

local function names_of(value)
  local names = {}
  each_name(value, function(name) names[#names + 1] = name end)
  return names
end

local function outputs_of(node)
  local names = {}
  for _, out in ipairs(node.outputs) do each_name(out, function(name) names[#names + 1] = name end) end
  return names
end

local function number(node, key)
  local arg = argument(node, key)
  return arg and (arg.as_int or arg.as_float and tonumber(arg.as_float))
end

local function is_grouped(node) return string.find(node.target, "[%._]grouped_mm") ~= nil end

-- The one index of x[index], or nil.
local function index_of(node)
  local arg = short(node.target) == "index" and argument(node, "indices")
  local list = arg and (arg.as_optional_tensors or arg.as_tensors)
  local names = list and #list == 1 and names_of(arg)
  return names and #names == 1 and names[1] or nil
end

local function node_of(like, target, inputs, outputs)
  local named = {}
  for i = 1, #inputs, 2 do named[#named + 1] = {name = inputs[i], arg = {as_tensor = {name = inputs[i + 1]}}} end
  return {target = "torch.ops.aten." .. target, inputs = named, outputs = outputs, metadata = like.metadata}
end

-- What is found of one mixture while its nodes are followed.
local Mixture = {}
Mixture.__index = Mixture

function Mixture:readers(name) return self.read_by[name] or {} end

-- The matrix [tokens, k] that was flattened.
function Mixture:flattened(name)
  local node = name and self.def[name]
  local from = node and RESHAPES[short(node.target)] and tensor(node, "self")
  local shape = from and self.shape_of(from)
  return shape and #shape == 2 and #self.shape_of(name) == 1 and from or nil
end

function Mixture:replace(node, list) self.replaced[node] = list return true end

-- The readers of the order: the tokens' rows, the places' weights, the way back.
function Mixture:take_order(node)
  local operator = short(node.target)
  if operator == "floor_divide" or operator == "div" then
    if number(node, "other") ~= self.k then return false end
    for _, reader in ipairs(self:readers(outputs_of(node)[1])) do
      local x = index_of(reader) == outputs_of(node)[1] and tensor(reader, "self")
      if not x or #self.shape_of(x) ~= 2 then return false end
      self.rows[outputs_of(reader)[1]] = true
      self:replace(reader, {node_of(reader, "tpgen_dispatch.default", {"x", x, "ids", self.ids, "counts", self.counts},
        reader.outputs)})
    end
    return self:replace(node, {})
  elseif operator == "index" then
    local weights = self:flattened(tensor(node, "self"))
    if not weights then return false end
    self.weights[outputs_of(node)[1]] = weights
    return self:replace(node, {})
  elseif operator == "empty_like" then
    for _, reader in ipairs(self:readers(outputs_of(node)[1])) do
      local arg = string.find(short(reader.target), "^index_put") and argument(reader, "indices")
      local names = arg and names_of(arg)
      local values, adds = arg and self.def[tensor(reader, "values") or ""], arg and argument(reader, "accumulate")
      if adds and adds.as_bool then return false end
      if not names or #names ~= 1 or names[1] ~= self.order or not values or short(values.target) ~= "arange" then return false end
      self.inverse[outputs_of(reader)[1]] = true
      self:replace(reader, {})
    end
    return self:replace(node, {})
  end
  return string.find(operator, "^index_put") ~= nil -- taken with its empty tensor
end

-- The readers of the sorted experts: where each expert's rows end.
function Mixture:take_sorted(name)
  for _, node in ipairs(self:readers(name)) do
    local operator, out = short(node.target), outputs_of(node)[1]
    if not out then
      self:replace(node, {}) -- it asserts
    elseif operator == "to" or operator == "_to_copy" or operator == "cumsum" then
      if not self:take_sorted(out) then return false end
    elseif operator == "histc" then
      local bins = number(node, "bins")
      if not bins or number(node, "min") ~= 0 or number(node, "max") ~= bins - 1 then return false end
      self.experts = bins
      if not self:take_sorted(out) then return false end
    elseif operator == "index" then
      local biases = tensor(node, "self")
      if index_of(node) ~= name or #self.shape_of(biases) ~= 2 then return false end
      self.biases[out] = biases
    elseif is_grouped(node) then
      if tensor(node, "offs") ~= name then return false end
      self.ends[name] = true
    else
      return false
    end
    if not self.ends[name] then self:replace(node, {}) end
  end
  return true
end

-- Whether the node does to each row what it does to rows in another order; and which of its results are rows.
function Mixture:take_rows(node)
  local operator, inputs, has_rows = short(node.target), {}, false
  if #node.outputs == 0 then return true end
  torch.each_input(node, function(name) inputs[#inputs + 1] = name end)
  for _, name in ipairs(inputs) do has_rows = has_rows or self.rows[name] end
  if not has_rows then return true end
  local outs = outputs_of(node)
  if is_grouped(node) then
    local x, w = tensor(node, "self") or tensor(node, "input"), tensor(node, "mat2") or tensor(node, "weight")
    local ends = tensor(node, "offs")
    if not x or not w or not self.rows[x] or self.rows[w] or not self.ends[ends or ""] or argument(node, "bias") then
      return false
    end
    local matrices, list = self:matrices(node, w)
    self.grouped[outs[1]] = {node = node, x = x, matrices = matrices, before = list}
    self:replace(node, {list[1] or self:grouped_linear(node, x, matrices, node.outputs),
      list[1] and self:grouped_linear(node, x, matrices, node.outputs) or nil})
  elseif (operator == "add" or operator == "add_") and self:bias_of(node) then
    local x, biases = self:bias_of(node)
    self.sums[outs[1]] = {x = x, biases = biases}
    self:replace(node, {self:with_bias(node, x, biases, node.outputs)})
  elseif operator == "slice" and (self.grouped[inputs[1]] or self.sums[inputs[1]]) then
    if not self:take_slice(node, inputs[1], outs[1]) then return false end
  elseif operator == "mul" and self:weights_of(node) then
    local x, weights = self:weights_of(node)
    self.weighted[outs[1]] = weights
    self:replace(node, {node_of(node, "alias.default", {"self", x}, node.outputs)})
  elseif operator == "index" then
    local x = tensor(node, "self")
    if not self.rows[x] or not self.inverse[index_of(node) or ""] then return false end
    return self:take_end(node, x)
  elseif operator == "chunk" or operator == "split" or operator == "split_with_sizes" then
    if not self:take_parts(node, outs) then return false end
  elseif BY_ELEMENT[operator] then
    for _, name in ipairs(inputs) do
      if not self.rows[name] and #self.shape_of(name) > 0 then return false end
      if self.weighted[name] then return false end
    end
  else
    return false
  end
  for _, name in ipairs(outs) do self.rows[name] = true end
  return true
end

-- The experts' matrices, [experts, out, in], of those that are [experts, in, out]; and the node that makes them, or
-- none if they exist.
function Mixture:matrices(node, w)
  local made = self.def[w]
  if made and short(made.target) == "transpose" then
    local a, b = number(made, "dim0"), number(made, "dim1")
    if a and b and a ~= b and a % 3 > 0 and b % 3 > 0 then return tensor(made, "self"), {} end
  end
  local transpose = node_of(node, "transpose.int", {"self", w}, {{as_tensor = {name = "tpgen.matrices." .. outputs_of(node)[1]}}})
  for _, pair in ipairs{{"dim0", 1}, {"dim1", 2}} do
    transpose.inputs[#transpose.inputs + 1] = {name = pair[1], arg = {as_int = pair[2]}}
  end
  return outputs_of(transpose)[1], {transpose}
end

function Mixture:grouped_linear(like, x, weight, outputs)
  return node_of(like, "tpgen_grouped_linear.default", {"x", x, "weight", weight, "counts", self.counts}, outputs)
end

-- Parts of a product's columns: products with parts of its matrices.
function Mixture:take_parts(node, outs)
  local whole = tensor(node, "self")
  local made, shape = self.grouped[whole], self.shape_of(whole)
  if not made or #self:readers(whole) ~= 1 or (number(node, "dim") or 0) % #shape ~= #shape - 1 then return false end
  local list, first = {made.before[1]}, 0
  for i, out in ipairs(outs) do
    local part, size = "tpgen.part" .. i .. "." .. whole, self.shape_of(out)[#shape]
    local slice = node_of(node, "slice.Tensor", {"self", made.matrices}, {{as_tensor = {name = part}}})
    for _, pair in ipairs{{"dim", 1}, {"start", first}, {"end", first + size}} do
      slice.inputs[#slice.inputs + 1] = {name = pair[1], arg = {as_int = pair[2]}}
    end
    list[#list + 1] = slice
    list[#list + 1] = self:grouped_linear(node, made.x, part, {{as_tensor = {name = out}}})
    first = first + size
  end
  self:replace(made.node, {})
  return self:replace(node, list)
end

-- Of a sum of a product's rows and their experts' biases: both, the biases as [experts, n].
function Mixture:bias_of(node)
  local alpha = number(node, "alpha")
  for _, keys in ipairs{{"self", "other"}, {"other", "self"}} do
    local x, y = tensor(node, keys[1]), tensor(node, keys[2])
    if (not alpha or alpha == 1) and x and y and self.grouped[x] and self.biases[y] and #self:readers(x) == 1 then
      return x, self.biases[y]
    end
  end
end

function Mixture:with_bias(like, x, biases, outputs)
  return node_of(like, "tpgen_add_expert_bias.default", {"x", x, "biases", biases, "ids", self.ids, "counts", self.counts}, outputs)
end

-- Some columns of a product, and of its bias: the product with these columns of its matrices.
function Mixture:take_slice(node, whole, out)
  local sum = self.sums[whole]
  local product = sum and sum.x or whole
  local made, shape = self.grouped[product], self.shape_of(whole)
  if (number(node, "dim") or 0) % #shape ~= #shape - 1 then return false end
  local list = {}
  local function columns(from, to) -- dimension 1 of both
    local slice = node_of(node, "slice.Tensor", {"self", from}, {{as_tensor = {name = to}}})
    slice.inputs[#slice.inputs + 1] = {name = "dim", arg = {as_int = 1}}
    for _, input in ipairs(node.inputs) do
      if input.name ~= "self" and input.name ~= "dim" then slice.inputs[#slice.inputs + 1] = input end
    end
    list[#list + 1] = slice
    return to
  end
  local rows, matrices = sum and "tpgen.rows." .. out or out, columns(made.matrices, "tpgen.matrices." .. out)
  local biases = sum and columns(sum.biases, "tpgen.biases." .. out)
  list[#list + 1] = self:grouped_linear(node, made.x, matrices, {{as_tensor = {name = rows}}})
  if sum then list[#list + 1] = self:with_bias(node, rows, biases, node.outputs) end
  return self:replace(node, list)
end

-- rows * unsqueeze(weights, -1): the rows, and the weights [tokens, k].
function Mixture:weights_of(node)
  for _, keys in ipairs{{"self", "other"}, {"other", "self"}} do
    local x, y = tensor(node, keys[1]), tensor(node, keys[2])
    local made = y and self.def[y]
    local from = made and short(made.target) == "unsqueeze" and number(made, "dim") == -1 and tensor(made, "self")
    if x and self.rows[x] and from and self.weights[from] then
      self:replace(made, {})
      return x, self.weights[from]
    end
  end
end

-- From the rows in their order to the sum over each token's places.
function Mixture:take_end(node, rows)
  local weights = self.weighted[rows]
  local views = self:readers(outputs_of(node)[1])
  local shaped = #views == 1 and RESHAPES[short(views[1].target)] and outputs_of(views[1])[1]
  local shape = shaped and self.shape_of(shaped)
  if not weights or not shape or #shape ~= 3 or shape[2] ~= self.k then return false end
  local sums = self:readers(shaped)
  local dims = #sums == 1 and short(sums[1].target) == "sum" and argument(sums[1], "dim")
  if not dims or not dims.as_ints or #dims.as_ints ~= 1 or dims.as_ints[1] ~= 1 then return false end
  local keep = argument(sums[1], "keepdim")
  if keep and keep.as_bool then return false end
  self:replace(node, {})
  self:replace(views[1], {})
  self.is_complete = true
  return self:replace(sums[1], {node_of(sums[1], "tpgen_combine.default", {"rows", rows, "ids", self.ids, "weights", weights,
    "counts", self.counts}, sums[1].outputs)})
end

-- The nodes that replace those of the mixture that begins with a sort, by node; nil: it is none.
local function mixture_at(sort, nodes, at, facts)
  local outs, from = outputs_of(sort), tensor(sort, "self")
  local descending = argument(sort, "descending")
  if #outs ~= 2 or not from or descending and descending.as_bool then return nil end
  local m = setmetatable({def = facts.def, read_by = facts.read_by, shape_of = facts.shape_of, replaced = {}, rows = {},
    weights = {}, weighted = {}, inverse = {}, ends = {}, grouped = {}, biases = {}, sums = {}, order = outs[2]}, Mixture)
  m.ids = m:flattened(from)
  if not m.ids then return nil end
  m.k, m.counts = m.shape_of(m.ids)[2], "tpgen.counts." .. outs[1]
  if not m:take_sorted(outs[1]) or not m.experts then return nil end
  for _, node in ipairs(m:readers(m.order)) do
    if not m:take_order(node) then return nil end
  end
  for i = at + 1, #nodes do
    if not m:take_rows(nodes[i]) then return nil end
  end
  if not m.is_complete then return nil end
  local count = node_of(sort, "tpgen_count_places.default", {"ids", m.ids}, {{as_tensor = {name = m.counts}}})
  count.inputs[2] = {name = "experts", arg = {as_int = m.experts}}
  m.replaced[sort] = {count}
  return m.replaced
end

-- The nodes, with mixtures of experts as operators for rows by expert.
function torch.with_experts(nodes, shape_of)
  local facts, replaced, list = {def = {}, read_by = {}, shape_of = shape_of}, {}, {}
  for _, node in ipairs(nodes) do
    for _, name in ipairs(outputs_of(node)) do facts.def[name] = node end
    torch.each_input(node, function(name)
      local readers = facts.read_by[name] or {}
      if readers[#readers] ~= node then readers[#readers + 1] = node end
      facts.read_by[name] = readers
    end)
  end
  for at, node in ipairs(nodes) do
    local found = short(node.target) == "sort" and mixture_at(node, nodes, at, facts)
    for _, of in ipairs(found and nodes or {}) do replaced[of] = replaced[of] or found[of] end
  end
  for _, node in ipairs(nodes) do
    for _, n in ipairs(replaced[node] or {node}) do list[#list + 1] = n end
  end
  return list
end

-- ---------------------------------------------------------------------------- the operators in their place

local F = base.F

local function with_batch(x) -- [tokens, ...] as one sequence
  local shape = core.shape(x)
  table.insert(shape, 1, 1)
  return view(x, shape)
end

operators.tpgen_count_places = function(a)
  return F.count_places(raw.to(with_batch(a.ids), "int32"), {sizes = {e = a.experts}, scalar = 0})
end
operators.tpgen_dispatch = function(a)
  local ids = with_batch(a.ids)
  return F.dispatch(with_batch(a.x), raw.to(ids, "int32"), raw.full(core.shape(ids), 1.0), a.counts)
end
operators.tpgen_grouped_linear = function(a)
  return F.grouped_linear(a.x, a.weight, a.counts)
end
-- A row of one 1 for each row: times an expert's bias it is that bias.
operators.tpgen_add_expert_bias = function(a)
  local ids = raw.to(with_batch(a.ids), "int32")
  local shape = core.shape(ids)
  local one = raw.full({shape[1], shape[2], 1}, 1.0)
  local ones = F.dispatch(one, ids, raw.full(shape, 1.0), a.counts)
  return raw.add(a.x, F.grouped_linear(ones, F.unsqueeze(a.biases, -1), a.counts))
end
operators.tpgen_combine = function(a)
  local y = F.combine(a.rows, raw.to(with_batch(a.ids), "int32"), with_batch(base.wide(a.weights)), a.counts)
  local shape = core.shape(y)
  return view(y, {shape[2], shape[3]})
end
