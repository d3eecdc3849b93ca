-- patterns.lua: nodes of an exported program that together are one operator of ours: attention that
-- was written, or decomposed, as two products with a softmax between; keys and values that are repeated
-- for a group of heads; the rotary embedding; and linear layers that were decomposed to batches. Their
-- result gets one node in their place. Nodes that nothing reads then are left out.
local _, base = ...
local torch = base.torch
local short, each_name = torch.short, torch.each_name

local LEAST = -1e30 -- a score below it is masked
local NON_FINITE = {Infinity = math.huge, ["-Infinity"] = -math.huge}

-- A pattern's view of the graph: where each value comes from, and its shape.
local Graph = {}
Graph.__index = Graph

local SEEN_THROUGH = {view = true, reshape = true, _unsafe_view = true, clone = true, contiguous = true,
  alias = true, expand = true, to = true, _to_copy = true, flatten = true, unsqueeze = true, squeeze = true}
local function new_graph(nodes, shape_of, type_of)
  local g = setmetatable({nodes = nodes, def = {}, shape_of = shape_of, type_of = type_of, place = {},
    changed = {}, before = {}, after = {}, count = 0}, Graph)
  for _, node in ipairs(nodes) do
    local i = 0
    for _, out in ipairs(node.outputs) do
      each_name(out, function(name)
        i = i + 1
        g.def[name], g.place[name] = node, i
      end)
    end
  end
  for _, node in ipairs(nodes) do
    for _, name in ipairs(torch.changed_values(node)) do g.changed[g:storage(name)] = true end
  end
  return g
end

function Graph:argument(node, key)
  if math.type(key) then return node.inputs[key] and node.inputs[key].arg end
  for _, input in ipairs(node.inputs) do
    if input.name == key then return input.arg end
  end
end

-- The name of the tensor that is an argument, or nil.
function Graph:tensor(node, key)
  local arg = self:argument(node, key)
  return arg and arg.as_tensor and arg.as_tensor.name
end

-- The value whose storage this one may share.
function Graph:storage(name)
  while true do
    local from = self.def[name] and torch.may_share(self.def[name], self.place[name])
    if not from then return name end
    name = from
  end
end

-- Whether something changes the value in place.
function Graph:is_changed(name) return self.changed[self:storage(name)] == true end

-- The node that makes the value, if it is one of these operators and nothing changes the value later.
function Graph:made_by(name, ...)
  local node = name and self.def[name]
  if not node or self:is_changed(name) then return nil end
  local operator = short(node.target)
  for _, expected in ipairs{...} do
    if operator == expected then return node end
  end
end

-- The number that an argument is, or that every element of the tensor is which it names; or nil.
function Graph:number(node, key)
  local arg = self:argument(node, key)
  if not arg then return nil end
  if arg.as_float ~= nil then return NON_FINITE[arg.as_float] or tonumber(arg.as_float) end
  if arg.as_int then return arg.as_int end
  local name = arg.as_tensor and arg.as_tensor.name
  for _ = 1, 8 do
    local made = self:made_by(name, "full", "scalar_tensor", "full_like", "expand", "view", "_to_copy", "to", "alias",
      "unsqueeze", "clone", "detach")
    if not made then return nil end
    local operator = short(made.target)
    if operator == "full" or operator == "full_like" then return self:number(made, "fill_value") end
    if operator == "scalar_tensor" then return self:number(made, "s") end
    name = self:tensor(made, "self")
  end
end

local function elements(shape) return base.elements(shape) end

-- The value before a node that changes no number, order or type of it; and that node.
function Graph:before_view(name)
  local node = self.def[name]
  if not node or not SEEN_THROUGH[short(node.target)] or self:is_changed(name) then return nil end
  local from = self:tensor(node, "self")
  if not from then return nil end
  if self.type_of(from) ~= self.type_of(name) then return nil end
  return elements(self.shape_of(from)) == elements(self.shape_of(name)) and from or nil
end

-- A new value: a node before or after the one at hand.
function Graph:add(list, like, target, inputs)
  self.count = self.count + 1
  local name = "tpgen." .. self.count
  local named = {}
  for i = 1, #inputs, 2 do named[#named + 1] = {name = inputs[i], arg = inputs[i + 1]} end
  list[#list + 1] = {target = "torch.ops.aten." .. target, inputs = named, outputs = {{as_tensor = {name = name}}},
    metadata = like.metadata}
  return name
end

local function tensor_argument(name) return {as_tensor = {name = name}} end

-- ------------------------------------------------------------------------------------------ attention

-- Goes back from the weights to the softmax; gives the name of the scores and the dropout.
function Graph:find_softmax(name)
  local dropout = 0.0
  for _ = 1, 12 do
    local node = self.def[name]
    if not node or self:is_changed(name) then return nil end
    local operator = short(node.target)
    if operator == "softmax" or operator == "_softmax" or operator == "_safe_softmax" then
      local dim, dtype = self:number(node, "dim"), self:argument(node, "dtype")
      local scores = self:tensor(node, "self")
      if dtype and dtype.as_scalar_type and self.type_of(scores) ~= self.type_of(name) then return nil end
      if dim ~= -1 and dim ~= #self.shape_of(name) - 1 then return nil end
      return scores, dropout
    elseif operator == "dropout" or operator == "native_dropout" then
      local trains = self:argument(node, "train")
      if not trains or trains.as_bool ~= false then
        if dropout ~= 0 then return nil end
        dropout = self:number(node, "p")
      end
      name = self:tensor(node, "input")
    elseif operator == "where" then
      name = self:weights_of_seen(node)
    else
      name = self:before_view(name)
    end
    if not name then return nil end
  end
end

-- where(no key is seen, 0, softmax(scores)): the softmax's name.
function Graph:weights_of_seen(node)
  local weights = self:tensor(node, "other")
  local none = self:made_by(self:tensor(node, "condition"), "logical_not")
  local some = none and self:made_by(self:tensor(none, "self"), "any")
  local seen = some and self:made_by(self:tensor(some, "self"), "logical_not")
  local masked = seen and self:made_by(self:tensor(seen, "self"), "eq")
  local softmax = weights and self:made_by(weights, "_softmax", "softmax")
  if not masked or not softmax or self:number(node, "self") ~= 0 then return nil end
  if self:number(masked, "other") ~= -math.huge then return nil end
  return self:tensor(masked, "self") == self:tensor(softmax, "self") and weights or nil
end

-- Whether the value is a product, perhaps scaled and in another shape.
function Graph:is_product(name)
  for _ = 1, 8 do
    local node = name and self.def[name]
    if not node then return false end
    local operator = short(node.target)
    if operator == "bmm" or operator == "matmul" or operator == "baddbmm" then return true end
    name = (operator == "mul" or operator == "div") and self:number(node, "other") and self:tensor(node, "self")
      or self:before_view(name)
  end
  return false
end

-- How keys are hidden: {name = the mask, hides = it is true where a key is not seen, shape = of the scores
-- there}; and the scores before it. nil: the node is no mask.
function Graph:masked_by(node, name)
  local operator, shape = short(node.target), self.shape_of(name)
  if operator == "add" and not self:argument(node, "alpha") then
    local x, y = self:tensor(node, "self"), self:tensor(node, "other")
    if not x or not y then return nil end
    if not self:is_product(x) then x, y = y, x end
    if not self:is_product(x) or self.type_of(y) ~= self.type_of(x) then return nil end
    return {name = y, shape = shape}, x
  elseif operator == "where" then
    local x, y = self:tensor(node, "self"), self:tensor(node, "other")
    if x and (self:number(node, "other") or 0) <= LEAST then
      return {name = self:tensor(node, "condition"), shape = shape}, x
    elseif y and (self:number(node, "self") or 0) <= LEAST then
      return {name = self:tensor(node, "condition"), shape = shape, hides = true}, y
    end
  elseif operator == "masked_fill" and (self:number(node, "value") or 0) <= LEAST then
    return {name = self:tensor(node, "mask"), shape = shape, hides = true}, self:tensor(node, "self")
  end
end

-- Goes back from the scores to the product of queries and keys: {query =, key =: their names, key's with
-- its last dimensions changed, scale =, mask =}.
function Graph:find_scores(name)
  local scale, mask = 1.0, nil
  for _ = 1, 12 do
    local node = self.def[name]
    if not node or self:is_changed(name) then return nil end
    local operator = short(node.target)
    local by = (operator == "mul" or operator == "div") and self:number(node, "other")
    local found, before = self:masked_by(node, name)
    if operator == "bmm" or operator == "matmul" then
      return {query = self:tensor(node, "self"), key = self:tensor(node, operator == "bmm" and "mat2" or "other"),
        scale = scale, mask = mask}
    elseif operator == "baddbmm" then
      local beta, alpha = self:number(node, "beta") or 1, self:number(node, "alpha") or 1
      if mask or beta ~= 1 then return nil end
      return {query = self:tensor(node, "batch1"), key = self:tensor(node, "batch2"), scale = scale * alpha,
        mask = {name = self:tensor(node, "self"), shape = self.shape_of(name)}}
    elseif found then
      if mask or scale ~= 1 then return nil end
      mask, name = found, before
    elseif by and by ~= 0 then
      scale, name = operator == "mul" and scale * by or scale / by, self:tensor(node, "self")
    else
      name = self:before_view(name)
    end
    if not name then return nil end
  end
end

-- Goes back to a value of four dimensions, the last two of these sizes; `name` is its view or its
-- multiple: its name, and the factor. Where there is none: name, whose first dimension is the batch's.
function Graph:with_heads(name, rows, columns)
  local factor, own = 1.0, name
  for _ = 1, 12 do
    local shape = self.shape_of(name)
    if #shape == 4 and shape[3] == rows and shape[4] == columns then return name, factor end
    local node = self.def[name]
    local operator = node and short(node.target)
    local by = operator == "mul" and self:number(node, "other")
    local before = by and self:tensor(node, "self") or self:before_view(name)
    if not before then break end
    name, factor = before, factor * (by or 1.0)
  end
  return #self.shape_of(own) == 3 and own, 1.0
end

-- Without factors and other views of the same shape above it.
function Graph:bare(name, factor)
  for _ = 1, 8 do
    local node, shape = self.def[name], self.shape_of(name)
    local by = node and short(node.target) == "mul" and self:number(node, "other")
    local before = by and self:tensor(node, "self") or self:before_view(name)
    if not before or not base.same_shape(self.shape_of(before), shape) then break end
    name, factor = before, factor * (by or 1.0)
  end
  return name, factor
end

-- The value with its last two dimensions changed: that from which it came so, or a new one.
function Graph:transposed(list, like, name)
  local node, n = self.def[name], #self.shape_of(name)
  local operator = node and not self:is_changed(name) and short(node.target)
  if operator == "transpose" then
    local a, b = self:number(node, "dim0"), self:number(node, "dim1")
    local dims = {[(a or 0) % n] = true, [(b or 0) % n] = true}
    if dims[n - 1] and dims[n - 2] then return self:tensor(node, "self") end
  elseif operator == "permute" then
    local dims = self:argument(node, "dims")
    if dims and dims.as_ints and #dims.as_ints == n then
      dims = table.move(dims.as_ints, 1, n, 1, {})
      dims[n - 1], dims[n] = dims[n], dims[n - 1]
      for i, d in ipairs(dims) do
        if d % n ~= i - 1 then
          return self:add(list, like, "permute.default", {"self", tensor_argument(self:tensor(node, "self")), "dims", {as_ints = dims}})
        end
      end
      return self:tensor(node, "self")
    end
  end
  return self:add(list, like, "transpose.int", {"self", tensor_argument(name), "dim0", {as_int = -2}, "dim1", {as_int = -1}})
end

-- Keys or values [b, h, s, d] that repeat each of fewer heads: these, [b, g, s, d]; or nil.
function Graph:repeated(name)
  local shape = self.shape_of(name)
  if #shape ~= 4 then return nil end
  local from = self:before_view(name)
  while from and #self.shape_of(from) == 4 do from = self:before_view(from) end
  local five = from and self.shape_of(from)
  if not five or #five ~= 5 or five[1] ~= shape[1] or five[4] ~= shape[3] or five[5] ~= shape[4] then return nil end
  local node = self.def[from]
  while node and short(node.target) ~= "expand" do
    from = self:before_view(from)
    if not from or not base.same_shape(self.shape_of(from), five) then return nil end
    node = self.def[from]
  end
  local one = node and self:tensor(node, "self")
  local sizes = one and self.shape_of(one)
  if not sizes or #sizes ~= 5 or sizes[3] ~= 1 or sizes[2] ~= five[2] then return nil end
  while one and #self.shape_of(one) ~= 4 do
    local made = self.def[one]
    local is_slice = made and short(made.target) == "slice"
      and base.same_shape(self.shape_of(one), self.shape_of(self:tensor(made, "self")))
    one = is_slice and self:tensor(made, "self") or self:before_view(one)
  end
  local heads = one and self.shape_of(one)
  return heads and heads[1] == shape[1] and heads[2] == five[2] and heads[3] == shape[3]
    and heads[4] == shape[4] and one or nil
end

-- The value in the shape, by a new node where it has another.
function Graph:reshaped(list, like, name, shape)
  if base.same_shape(self.shape_of(name), shape) then return name end
  return self:add(list, like, "view.default", {"self", tensor_argument(name), "size", {as_ints = shape}})
end

-- The mask for scores [b, h, t, s], as an argument.
function Graph:mask_argument(list, node, mask, b, h)
  local name, shape = mask.name, self.shape_of(mask.name)
  if #shape > 4 then return nil end
  if #mask.shape == 3 and #shape == 3 and shape[1] ~= 1 then
    name = self:reshaped(list, node, name, {b, h, shape[2], shape[3]})
  elseif #mask.shape ~= 4 and not (#mask.shape == 3 and (#shape < 3 or shape[1] == 1)) then
    return nil
  end
  if mask.hides then name = self:add(list, node, "logical_not.default", {"self", tensor_argument(name)}) end
  return tensor_argument(name)
end

-- Puts an attention in the place of the product of weights and values, if that is one.
function Graph:take_attention(node)
  local is_bmm = short(node.target) == "bmm"
  if not is_bmm and short(node.target) ~= "matmul" then return false end
  local weights, values = self:tensor(node, "self"), self:tensor(node, is_bmm and "mat2" or "other")
  local out = node.outputs[1] and node.outputs[1].as_tensor and node.outputs[1].as_tensor.name
  if not weights or not values or not out then return false end
  local scores, dropout = self:find_softmax(weights)
  local found = scores and self:find_scores(scores)
  if not found or not found.query or not found.key then return false end
  for _, name in ipairs{found.query, found.key, values, found.mask and found.mask.name} do
    if self:is_changed(name) then return false end
  end
  local w, list = self.shape_of(weights), {}
  local t, s = w[#w - 1], w[#w]
  local sizes = self.shape_of(found.query)
  local width, v_sizes = sizes[#sizes], self.shape_of(values)
  local e = v_sizes[#v_sizes]
  if #sizes < 3 or #v_sizes < 3 then return false end
  local q, by_q = self:with_heads(found.query, t, width)
  local k, by_k = self:with_heads(found.key, width, s)
  local v, by_v = self:with_heads(values, s, e)
  if not q or not k or not v or by_v ~= 1 then return false end
  local n = #self.shape_of(q)
  if #self.shape_of(k) ~= n or #self.shape_of(v) ~= n then return false end
  q, by_q = self:bare(q, by_q)
  k, by_k = self:bare(k, by_k)
  k = self:transposed(list, node, k)
  if self.def[k] then k, by_k = self:bare(k, by_k) end
  local shape = self.shape_of(q)
  local b, h = shape[1], n == 4 and shape[2] or 1
  local out_shape = self.shape_of(out)
  if elements(out_shape) ~= b * h * t * e then return false end
  local mask = nil
  if found.mask then
    mask = found.mask.name and self:mask_argument(list, node, found.mask, b, h)
    if not mask then return false end
  end
  local function four(name, rows, columns)
    if n == 4 then return name end
    return self:add(list, node, "view.default", {"self", tensor_argument(name), "size", {as_ints = {b, 1, rows, columns}}})
  end
  q, k, v = four(q, t, width), four(k, s, width), four(v, s, e)
  local few_k, few_v = self.def[k] and self:repeated(k), self.def[v] and self:repeated(v)
  if few_k and few_v and base.same_shape(self.shape_of(few_k), self.shape_of(few_v)) then k, v = few_k, few_v end
  local inputs = {"query", tensor_argument(q), "key", tensor_argument(k), "value", tensor_argument(v),
    "scale", {as_float = found.scale * by_q * by_k}, "dropout_p", {as_float = dropout}}
  if mask then
    inputs[#inputs + 1], inputs[#inputs + 2] = "attn_mask", mask
  end
  local target = "scaled_dot_product_attention.default"
  if base.same_shape(out_shape, {b, h, t, e}) then
    self:add(list, node, target, inputs)
    list[#list].outputs = node.outputs
  else
    local whole = self:add(list, node, target, inputs)
    self:add(list, node, "view.default", {"self", tensor_argument(whole), "size", {as_ints = out_shape}})
    list[#list].outputs = node.outputs
  end
  return list
end

-- Attention as exported: with the heads that keys and values really have.
function Graph:take_grouped(node)
  if short(node.target) ~= "scaled_dot_product_attention" then return false end
  local k, v = self:tensor(node, "key"), self:tensor(node, "value")
  local few_k, few_v = k and self:repeated(k), v and self:repeated(v)
  if not few_k or not few_v then return false end
  local inputs = {}
  for i, input in ipairs(node.inputs) do
    local arg = input.name == "key" and tensor_argument(few_k) or input.name == "value" and tensor_argument(few_v)
      or input.arg
    inputs[i] = {name = input.name, arg = arg}
  end
  return {{target = node.target, inputs = inputs, outputs = node.outputs, metadata = node.metadata}}
end

-- --------------------------------------------------------------------------------------------- rotary

-- Half of the last dimension of x, from `first` on.
function Graph:is_half(name, x, first, size)
  local node = self:made_by(name, "slice")
  if not node or self:tensor(node, "self") ~= x then return false end
  local dim, n = self:number(node, "dim") or 0, #self.shape_of(x)
  if dim % n ~= n - 1 or (self:number(node, "step") or 1) ~= 1 then return false end
  return (self:number(node, "start") or 0) == first and self.shape_of(name)[n] == size
end

-- The x of cat(-x[half:], x[:half]), or nil.
function Graph:rotated_half(name)
  local node = self:made_by(name, "cat")
  local parts = node and self:argument(node, "tensors")
  local n = node and #self.shape_of(name)
  parts = parts and parts.as_tensors
  if not parts or #parts ~= 2 or ((self:number(node, "dim") or 0) - n) % n ~= n - 1 then return nil end
  local minus = self:made_by(parts[1].name, "neg")
  local second = minus and self:made_by(self:tensor(minus, "self"), "slice")
  local x = second and self:tensor(second, "self")
  local size = x and self.shape_of(x)[n]
  if not size or size % 2 ~= 0 then return nil end
  return self:is_half(self:tensor(minus, "self"), x, size // 2, size // 2)
    and self:is_half(parts[2].name, x, 0, size // 2) and x or nil
end

-- Whether the two halves of the table's last dimension are equal: it was made of cat(f, f).
function Graph:has_equal_halves(name)
  for _ = 1, 12 do
    local node = self.def[name]
    if not node or self:is_changed(name) then return false end
    local operator, n = short(node.target), #self.shape_of(name)
    if operator == "cat" then
      local parts, dim = self:argument(node, "tensors"), self:number(node, "dim") or 0
      parts = parts and parts.as_tensors
      return parts and #parts == 2 and parts[1].name == parts[2].name and dim % n == n - 1 or false
    end
    local from = self:tensor(node, "self")
    local last = from and self.shape_of(from)
    local by_element = operator == "cos" or operator == "sin" or operator == "detach" or operator == "alias"
      or operator == "to" or operator == "_to_copy" or operator == "unsqueeze" or operator == "expand"
      or operator == "clone" or operator == "slice" or operator == "contiguous"
      or operator == "mul" and self:number(node, "other")
    if not by_element or last[#last] ~= self.shape_of(name)[n] then return false end
    name = from
  end
  return false
end

-- Half of the table, which is made once, where the table is made.
function Graph:half_table(list, node, name, half)
  local made = self:made_by(name, "unsqueeze")
  local dim = made and self:number(made, "dim")
  local from = made and self:tensor(made, "self")
  if dim and dim >= 0 and dim < #self.shape_of(from) then
    local inner = self:half_table(list, node, from, half)
    return self:add(list, node, "unsqueeze.default", {"self", tensor_argument(inner), "dim", {as_int = dim}})
  end
  self.halves = self.halves or {}
  if not self.halves[name] then
    local at = self.def[name]
    self.after[at] = self.after[at] or {}
    self.halves[name] = self:add(self.after[at], at, "slice.Tensor", {"self", tensor_argument(name), "dim", {as_int = -1},
      "start", {as_int = 0}, "end", {as_int = half}})
  end
  return self.halves[name]
end

-- x cos + rotated_half(x) sin.
function Graph:take_rotary(node)
  if short(node.target) ~= "add" or self:argument(node, "alpha") then return false end
  local a = self:made_by(self:tensor(node, "self"), "mul")
  local b = self:made_by(self:tensor(node, "other"), "mul")
  if not a or not b then return false end
  local rotated, sin = self:tensor(b, "self"), self:tensor(b, "other")
  local x = rotated and sin and self:rotated_half(rotated)
  local cos = x and (self:tensor(a, "self") == x and self:tensor(a, "other")
    or self:tensor(a, "other") == x and self:tensor(a, "self"))
  if not cos or not self.def[cos] or not self.def[sin] then return false end
  if not self:has_equal_halves(cos) or not self:has_equal_halves(sin) then return false end
  local shape, list = self.shape_of(x), {}
  local size = shape[#shape]
  if #self.shape_of(cos) > #shape or self.type_of(cos) ~= self.type_of(x) then return false end
  local half_cos = self:half_table(list, node, cos, size // 2)
  local half_sin = self:half_table(list, node, sin, size // 2)
  self:add(list, node, "tpgen_rotary.default", {"x", tensor_argument(x), "cos", tensor_argument(half_cos),
    "sin", tensor_argument(half_sin)})
  list[#list].outputs = node.outputs
  return list
end

-- ------------------------------------------------------------------------------------- linear layers

-- The matrix, of two dimensions, that each matrix of the batch is; or nil.
function Graph:repeated_matrix(name)
  local shape = self.shape_of(name)
  for _ = 1, 4 do
    local node = self:made_by(name, "view", "expand", "clone", "unsqueeze", "reshape", "_unsafe_view")
    name = node and self:tensor(node, "self")
    local from = name and self.shape_of(name)
    if not from or from[#from] ~= shape[#shape] or from[#from - 1] ~= shape[#shape - 1] then return nil end
    if #from == 2 then return name end
  end
end

-- The value before views and expansions to the shape that it has.
function Graph:before_same(name)
  while true do
    local node = self:made_by(name, "view", "expand", "reshape", "_unsafe_view")
    local from = node and self:tensor(node, "self")
    if not from or not base.same_shape(self.shape_of(from), self.shape_of(name)) then return name end
    name = from
  end
end

-- Whether the node transposes a matrix.
function Graph:is_transpose(node)
  if #self.shape_of(self:tensor(node, "self")) ~= 2 then return false end
  local dims = self:argument(node, "dims")
  if dims then return dims.as_ints ~= nil and (dims.as_ints[1] or 0) % 2 == 1 end
  return short(node.target) == "t" or ((self:number(node, "dim0") or 0) - (self:number(node, "dim1") or 0)) % 2 == 1
end

-- x times a batch of one transposed weight, and plus a bias: as nn.MultiheadAttention's projection is decomposed.
function Graph:take_layer(node)
  local operator, bias = short(node.target), nil
  local product = node
  if operator == "add" and not self:argument(node, "alpha") then
    bias = self:tensor(node, "other")
    if not bias or not self:tensor(node, "self") then return false end
    product = self:made_by(self:before_same(self:tensor(node, "self")), "bmm")
  elseif operator ~= "bmm" then
    return false
  end
  local matrix = product and self:repeated_matrix(self:tensor(product, "mat2") or "")
  local made = matrix and self:made_by(matrix, "permute", "t", "transpose")
  local weight = made and self:tensor(made, "self")
  local input = weight and self:tensor(product, "self")
  if not input or self:is_changed(input) or not self:is_transpose(made) then return false end
  local sizes = self.shape_of(weight)
  local inputs = {{name = "input", arg = tensor_argument(self:before_same(input))},
    {name = "weight", arg = tensor_argument(weight)}}
  if bias then
    if not base.same_shape(self.shape_of(bias), {sizes[1]}) then return false end
    inputs[3] = {name = "bias", arg = tensor_argument(bias)}
  end
  return {{target = "torch.ops.aten.linear.default", inputs = inputs, outputs = node.outputs, metadata = node.metadata}}
end

-- Parts of tensors that were joined, as long as they are those tensors: the biases of a projection.
function Graph:take_split(node)
  local operator = short(node.target)
  if operator ~= "chunk" and operator ~= "split" and operator ~= "split_with_sizes" then return false end
  local joined = self:tensor(node, "self")
  local cat = joined and self:made_by(joined, "cat")
  local parts, names, list = cat and self:argument(cat, "tensors").as_tensors, {}, {}
  for _, out in ipairs(node.outputs) do each_name(out, function(name) names[#names + 1] = name end) end
  if not parts or #parts ~= #names then return false end
  local n = #self.shape_of(joined)
  local d = n > 0 and (self:number(cat, "dim") or 0) % n
  if not d or (self:number(node, "dim") or 0) % n ~= d then return false end
  for i, part in ipairs(parts) do
    if self:is_changed(part.name) or not base.same_shape(self.shape_of(part.name), self.shape_of(names[i])) then return false end
    list[i] = {target = "torch.ops.aten.alias.default", inputs = {{name = "self", arg = tensor_argument(part.name)}},
      outputs = {tensor_argument(names[i])}, metadata = node.metadata}
  end
  return list
end

-- ------------------------------------------------------------------------------------------- all

-- The nodes, with linear layers that were decomposed to batches, and no parts of what was joined. shape_of(name), type_of(name): of the graph's values.
function torch.with_layers(nodes, shape_of, type_of)
  local g, list = new_graph(nodes, shape_of, type_of), {}
  for _, node in ipairs(nodes) do
    for _, n in ipairs(g:take_layer(node) or g:take_split(node) or {node}) do list[#list + 1] = n end
  end
  return list
end

-- The nodes, with the other patterns replaced.
function torch.with_patterns(nodes, shape_of, type_of)
  local g = new_graph(nodes, shape_of, type_of)
  local replaced, list = {}, {}
  for _, node in ipairs(nodes) do
    replaced[node] = g:take_attention(node) or g:take_grouped(node) or g:take_rotary(node) or nil
  end
  for _, node in ipairs(nodes) do
    for _, n in ipairs(replaced[node] or {node}) do list[#list + 1] = n end
    for _, n in ipairs(g.after[node] or {}) do list[#list + 1] = n end
  end
  return list
end
