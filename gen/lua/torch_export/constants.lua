-- constants.lua: tensors of an exported program that depend on no input and no parameter: the
-- indices and masks that a model makes of arange. They are computed here, so that a mask is known to
-- be causal and positions to be 0, 1, 2 ...
--
-- A constant is {shape =, type =, base =, step = {...}}: the element at (i1, i2, ...) is
-- base + step[1] * i1 + step[2] * i2 + ...; or, of type "bool", {shape =, type =, all = {term ...}}:
-- it is true where every term, {base =, step =}, is at least 0; or {..., never = true}: it is false
-- everywhere; or {shape =, type =, choice =, yes =, no =}: the number `yes` where the bool `choice` is
-- true, and `no` elsewhere. Tensors without such a form are computed by the program.
local core, base = ...
local raw = base.raw

local constants = {}
base.constants = constants

local is_constant = setmetatable({}, {__mode = "k"})

function constants.is(v) return is_constant[v] == true end

local function new(c)
  is_constant[c] = true
  return c
end

local function zeros(n)
  local t = {}
  for i = 1, n do t[i] = 0 end
  return t
end

-- A number, or a bool, at every place.
function constants.full(shape, value, type_name)
  if type_name == "bool" then
    local c = {shape = shape, type = "bool", all = {}}
    c.never = (value == false or value == 0) or nil
    return new(c)
  end
  if value == true then value = 1 elseif value == false then value = 0 end
  return new{shape = shape, type = type_name, base = value, step = zeros(#shape)}
end
local full = constants.full

function constants.arange(first, count, step, type_name)
  return new{shape = {count}, type = type_name, base = first, step = {step}}
end

function constants.counted(shape, type_name, first, step)
  if type_name == "bool" then
    for _, s in ipairs(step) do
      if s ~= 0 then return nil end
    end
    return full(shape, first, "bool")
  end
  return new{shape = shape, type = type_name, base = first, step = step}
end

-- The number that every element is, or nil.
function constants.uniform(c)
  if c.choice then return c.yes == c.no and c.yes or nil end
  if c.type == "bool" then
    if c.never then return 0 end
    return #c.all == 0 and 1 or nil
  end
  for d, s in ipairs(c.step) do
    if s ~= 0 and c.shape[d] > 1 then return nil end
  end
  return c.base
end
local uniform = constants.uniform

-- The constant with f(base, step) in the place of those of each of its forms.
local function moved(c, shape, f)
  if c.type ~= "bool" then
    local b, s = f(c.base, c.step)
    return new{shape = shape, type = c.type, base = b, step = s}
  end
  local all = {}
  for i, term in ipairs(c.all) do
    local b, s = f(term.base, term.step)
    all[i] = {base = b, step = s}
  end
  return new{shape = shape, type = "bool", all = all, never = c.never}
end

-- Of a choice between two numbers, what f makes of its bool.
local function chosen(c, f, ...)
  local choice = f(c.choice, ...)
  return choice and new{shape = choice.shape, type = c.type, choice = choice, yes = c.yes, no = c.no}
end

-- Dimension d of the result is dimension from[d] of c, or of size sizes[d] and without meaning.
local function rearranged(c, from, sizes)
  local shape = {}
  for d = 1, #sizes do shape[d] = sizes[d] end
  return moved(c, shape, function(b, step)
    local s = {}
    for d = 1, #sizes do s[d] = from[d] and step[from[d]] or 0 end
    return b, s
  end)
end

local function place(shape, dim, more)
  return (dim < 0 and dim + #shape + (more or 0) or dim) + 1
end

function constants.unsqueeze(c, dim)
  local d, from, sizes = place(c.shape, dim, 1), {}, {}
  for i = 1, #c.shape + 1 do
    local at = i < d and i or i > d and i - 1 or nil
    from[i], sizes[i] = at, at and c.shape[at] or 1
  end
  return rearranged(c, from, sizes)
end

function constants.permute(c, dims)
  local from, sizes = {}, {}
  for i, d in ipairs(dims) do
    from[i] = place(c.shape, d)
    sizes[i] = c.shape[from[i]]
  end
  return rearranged(c, from, sizes)
end

function constants.transpose(c, a, b)
  local dims = {}
  for i = 1, #c.shape do dims[i] = i - 1 end
  a, b = place(c.shape, a), place(c.shape, b)
  dims[a], dims[b] = dims[b], dims[a]
  return constants.permute(c, dims)
end

function constants.expand(c, size)
  local from, sizes, ahead = {}, {}, #size - #c.shape
  for i = 1, #size do
    local at = i - ahead
    local own = at >= 1 and c.shape[at] or 1
    sizes[i] = size[i] == -1 and own or size[i]
    if at >= 1 and own == sizes[i] then from[i] = at end
    if own ~= 1 and own ~= sizes[i] then return nil end
  end
  return rearranged(c, from, sizes)
end

-- Another shape: of one that is the same everywhere, or by dimensions of size 1 that come and go.
function constants.reshape(c, shape)
  local old, from, i = {}, {}, 1
  for d, size in ipairs(c.shape) do
    if size ~= 1 then old[#old + 1] = d end
  end
  for d, size in ipairs(shape) do
    if size ~= 1 then
      if not old[i] or c.shape[old[i]] ~= size then
        local u = uniform(c)
        return u and full(shape, u, c.type)
      end
      from[d], i = old[i], i + 1
    end
  end
  return rearranged(c, from, shape)
end

function constants.slice(c, dim, first, count, by)
  local d, sizes = place(c.shape, dim), {}
  for i, size in ipairs(c.shape) do sizes[i] = i == d and count or size end
  return moved(c, sizes, function(b, step)
    local s = {}
    for i = 1, #sizes do s[i] = i == d and step[i] * by or step[i] end
    return b + step[d] * first, s
  end)
end

function constants.select(c, dim, index)
  local d, from, sizes = place(c.shape, dim), {}, {}
  if index < 0 then index = index + c.shape[d] end
  local at = constants.slice(c, dim, index, 1, 1)
  for i = 1, #c.shape - 1 do
    from[i] = i < d and i or i + 1
    sizes[i] = at.shape[from[i]]
  end
  return rearranged(at, from, sizes)
end

-- -------------------------------------------------------------------------------------- arithmetic

local function broadcast_shape(a, b)
  local n, shape = math.max(#a, #b), {}
  for i = 1, n do
    local x, y = a[#a - n + i] or 1, b[#b - n + i] or 1
    if x ~= y and x ~= 1 and y ~= 1 then return nil end
    shape[i] = x == 1 and y or x
  end
  return shape
end

-- A number, or a bool as 0 or 1, as a constant.
local function as_constant(v)
  if is_constant[v] then return v end
  if type(v) == "boolean" then return full({}, v, "bool") end
  return full({}, v, math.type(v) == "integer" and "int64" or "float32")
end

local RANK = base.type_ranks

-- Both as numbers of one shape; and the type of their result.
local function aligned(a, b)
  local number = not (is_constant[a] and is_constant[b])
  local known = is_constant[a] and a or b
  a, b = as_constant(a), as_constant(b)
  local shape = broadcast_shape(a.shape, b.shape)
  if not shape then return nil end
  local kind = RANK[a.type] >= RANK[b.type] and a.type or b.type
  if number and (RANK[kind] >= 4) == (RANK[known.type] >= 4) and known.type ~= "bool" then kind = known.type end
  local list = {a, b}
  for i, c in ipairs(list) do
    if c.type == "bool" then
      local u = uniform(c)
      if not u then return nil end
      c = full(c.shape, u, "int64")
    end
    list[i] = constants.expand(c, shape)
  end
  return list[1], list[2], kind == "bool" and "int64" or kind, shape
end

local function combined(a, b, factor)
  local x, y, kind, shape = aligned(a, b)
  if not x then return nil end
  local step = {}
  for d = 1, #shape do step[d] = x.step[d] + factor * y.step[d] end
  return new{shape = shape, type = kind, base = x.base + factor * y.base, step = step}
end

function constants.add(a, b, alpha) return combined(a, b, alpha or 1) end
function constants.sub(a, b, alpha) return combined(a, b, -(alpha or 1)) end

function constants.mul(a, b)
  local x, y, kind, shape = aligned(a, b)
  if not x then return nil end
  if not uniform(y) then x, y = y, x end
  local by = uniform(y)
  if not by then return nil end
  local step = {}
  for d = 1, #shape do step[d] = x.step[d] * by end
  return new{shape = shape, type = kind, base = x.base * by, step = step}
end

function constants.neg(a) return constants.mul(a, -1) end

function constants.to(c, type_name)
  if type_name == c.type then return c end
  local u = uniform(c)
  if type_name == "bool" or c.type == "bool" then
    if not u then return nil end
    return full(c.shape, u ~= 0 and 1 or 0, type_name)
  end
  if RANK[type_name] < 4 and RANK[c.type] >= 4 then
    local whole, step = math.tointeger(c.base), {}
    for d, s in ipairs(c.step) do step[d] = math.tointeger(s) end
    if not whole or #step < #c.step then return nil end
    return new{shape = c.shape, type = type_name, base = whole, step = step}
  end
  if type_name == "bfloat16" then return nil end
  return new{shape = c.shape, type = type_name, base = c.base, step = c.step}
end

-- -------------------------------------------------------------------------------------- conditions

-- The least and the greatest that a term is.
local function range(shape, term)
  local low, high = term.base, term.base
  for d, s in ipairs(term.step) do
    local far = s * (shape[d] - 1)
    if far < 0 then low = low + far else high = high + far end
  end
  return low, high
end

-- The bool that is true where every term is at least 0.
local function where_all(shape, terms)
  local all = {}
  for _, term in ipairs(terms) do
    local low, high = range(shape, term)
    if high < 0 then return full(shape, 0, "bool") end
    if low < 0 then all[#all + 1] = term end
  end
  return new{shape = shape, type = "bool", all = all}
end

-- The least and the greatest that an element is, or nil.
function constants.range(c)
  if c.type == "bool" then return nil end
  return range(c.shape, c)
end

-- The difference of neighbouring elements of a constant with one dimension; or nil.
function constants.counted_by(c)
  return c.type ~= "bool" and #c.shape == 1 and c.base == 0 and c.step[1] or nil
end

-- The quotient by a number, rounded down, where all elements have one.
function constants.floor_divide(a, by)
  if not constants.is(a) or a.type == "bool" or math.type(by) ~= "integer" or by == 0 then return nil end
  local low, high = range(a.shape, a)
  if RANK[a.type] >= 4 or low // by ~= high // by then return nil end
  return full(a.shape, low // by, a.type)
end

-- The lesser or the greater of two, where one is that everywhere.
function constants.extreme(a, b, least)
  local c = combined(a, b, -1)
  if not c or c.type == "bool" then return nil end
  local low, high = range(c.shape, c)
  local first = least and high <= 0 or not least and low >= 0
  if not first and not (least and low >= 0 or not least and high <= 0) then return nil end
  return constants.expand(as_constant(first and a or b), c.shape)
end

local function negative(term, less)
  local step = {}
  for d, s in ipairs(term.step) do step[d] = -s end
  return {base = -term.base - less, step = step}
end

-- The bool whose elements are `near` where the last index is less than `edge` more than the one
-- before it.
function constants.band(shape, edge, near)
  local step = zeros(#shape)
  step[#shape - 1], step[#shape] = near and 1 or -1, near and -1 or 1
  return where_all(shape, {{base = near and edge - 1 or -edge, step = step}})
end

local function is_whole(c) return RANK[c.type] < 4 end

-- f(a - b, the same less 1): the terms of the condition.
local function comparison(terms)
  return function(a, b)
    local c = combined(a, b, -1)
    if not c then return nil end
    local u = uniform(c)
    if u then
      local holds = terms(u)
      return full(c.shape, holds and 1 or 0, "bool")
    end
    if not is_whole(c) then return nil end
    local found = terms(nil, c)
    return found and where_all(c.shape, found)
  end
end

constants.ge = comparison(function(u, c) if u then return u >= 0 end return {c} end)
constants.gt = comparison(function(u, c)
  if u then return u > 0 end
  return {{base = c.base - 1, step = c.step}}
end)
constants.le = comparison(function(u, c) if u then return u <= 0 end return {negative(c, 0)} end)
constants.lt = comparison(function(u, c) if u then return u < 0 end return {negative(c, 1)} end)
constants.eq = comparison(function(u, c) if u then return u == 0 end return {c, negative(c, 0)} end)
constants.ne = comparison(function(u, c)
  if u then return u ~= 0 end
  local low, high = range(c.shape, c)
  return (low > 0 or high < 0) and {} or nil
end)

local function both_bool(a, b)
  a, b = as_constant(a), as_constant(b)
  if a.type ~= "bool" or b.type ~= "bool" then return nil end
  local shape = broadcast_shape(a.shape, b.shape)
  return shape and constants.expand(a, shape), shape and constants.expand(b, shape), shape
end

function constants.both(a, b)
  local x, y, shape = both_bool(a, b)
  if not x then return nil end
  if x.never or y.never then return full(shape, 0, "bool") end
  local terms = table.move(x.all, 1, #x.all, 1, {})
  return where_all(shape, table.move(y.all, 1, #y.all, #terms + 1, terms))
end

function constants.either(a, b)
  local x, y = both_bool(a, b)
  if not x then return nil end
  if x.never then return y end
  if y.never then return x end
  if uniform(x) == 1 then return x end
  return uniform(y) == 1 and y or nil
end

function constants.negation(c)
  if c.type ~= "bool" then return nil end
  if c.never then return full(c.shape, 1, "bool") end
  if #c.all == 0 then return full(c.shape, 0, "bool") end
  return #c.all == 1 and where_all(c.shape, {negative(c.all[1], 1)}) or nil
end

-- a or b where the bool is true and false.
function constants.where(condition, a, b)
  if not is_constant[condition] or condition.type ~= "bool" then return nil end
  local u = uniform(condition)
  if not u then
    local x, y = as_constant(a), as_constant(b)
    local yes, no = uniform(x), uniform(y)
    if not yes or not no or x.type == "bool" or x.choice or y.choice then return nil end
    local shape = broadcast_shape(broadcast_shape(condition.shape, x.shape) or {}, y.shape)
    local spread = shape and constants.expand(condition, shape)
    local kind = RANK[x.type] >= RANK[y.type] and x.type or y.type
    return spread and new{shape = shape, type = kind, choice = spread, yes = yes, no = no}
  end
  local chosen, shape = as_constant(u ~= 0 and a or b), condition.shape
  for _, v in ipairs{a, b} do shape = broadcast_shape(shape, as_constant(v).shape) end
  return shape and constants.expand(chosen, shape)
end

-- ------------------------------------------------------------------------------- along a dimension

-- Parts that continue each other, as arange does.
function constants.cat(parts, dim)
  local first = parts[1]
  local d, at = place(first.shape, dim), 0
  if first.type == "bool" then return nil end
  local step = table.move(first.step, 1, #first.step, 1, {})
  -- A part of size 1 has no step of its own: the start of the next part gives it.
  if first.shape[d] == 1 then
    step[d] = parts[2] and parts[2].base - first.base or 0
  end
  for _, c in ipairs(parts) do
    if c.type ~= first.type or #c.shape ~= #first.shape then return nil end
    for i, s in ipairs(c.step) do
      if c.shape[i] > 1 and s ~= step[i] then return nil end
    end
    if c.base ~= first.base + step[d] * at then return nil end
    at = at + c.shape[d]
  end
  local shape = table.move(first.shape, 1, #first.shape, 1, {})
  shape[d] = at
  return new{shape = shape, type = first.type, base = first.base, step = step}
end

function constants.diff(c, dim)
  if c.type == "bool" then return nil end
  local d = place(c.shape, dim)
  local shape = table.move(c.shape, 1, #c.shape, 1, {})
  shape[d] = shape[d] - 1
  if shape[d] < 1 then return nil end
  return full(shape, c.step[d], c.type)
end

-- The sum of equal numbers.
function constants.cumsum(c, dim)
  local u = uniform(c)
  if not u then return nil end
  local step = zeros(#c.shape)
  step[place(c.shape, dim)] = u
  return new{shape = c.shape, type = c.type == "bool" and "int64" or c.type, base = u, step = step}
end

function constants.any(c, dim, keep)
  local u = uniform(c)
  if not u then return nil end
  local shape, d = {}, place(c.shape, dim)
  for i, size in ipairs(c.shape) do
    if i ~= d then shape[#shape + 1] = size elseif keep then shape[#shape + 1] = 1 end
  end
  return full(shape, u ~= 0 and 1 or 0, "bool")
end

-- c[i1, i2, ...]: an index for each of the first dimensions.
function constants.index(c, indices)
  local shape = {}
  for _, i in ipairs(indices) do
    if not i or i.type == "bool" then return nil end
    shape = broadcast_shape(shape, i.shape)
    if not shape then return nil end
  end
  local n = #shape
  for d = #indices + 1, #c.shape do shape[#shape + 1] = c.shape[d] end
  local lead = table.move(shape, 1, n, 1, {})
  local at = {}
  for k, i in ipairs(indices) do
    at[k] = constants.expand(i, lead)
    local low, high = range(lead, at[k])
    if low < 0 or high >= c.shape[k] then return nil end
  end
  return moved(c, shape, function(b, step)
    local s = zeros(#shape)
    for k, i in ipairs(at) do
      b = b + step[k] * i.base
      for d = 1, n do s[d] = s[d] + step[k] * i.step[d] end
    end
    for d = #indices + 1, #c.shape do s[n + d - #indices] = step[d] end
    return b, s
  end)
end

-- ------------------------------------------------------------------------------- what masks allow

-- Of a bool whose last dimensions are as many queries as keys: "all": every query sees every key;
-- "causal": each sees the keys up to its own place. The second result: it sees the keys less than so
-- many places away; nil: all. nil, nil: something else.
function constants.seen(c)
  if c.type ~= "bool" or c.never then return nil end
  local n, kind, window, behind = #c.shape, "all", nil, nil
  if n < 2 or c.shape[n - 1] ~= c.shape[n] then return #c.all == 0 and "all" or nil end
  for _, term in ipairs(c.all) do
    for d = 1, n - 2 do
      if term.step[d] ~= 0 and c.shape[d] > 1 then return nil end
    end
    local by_query, by_key = term.step[n - 1], term.step[n]
    if by_query ~= -by_key or math.abs(by_key) ~= 1 then return nil end
    if by_query == 1 and term.base == 0 and kind == "all" then
      kind = "causal" -- query - key >= 0
    elseif by_query == 1 and not behind and kind == "all" then
      behind = term.base -- key - query <= behind
    elseif by_query == -1 and not window and term.base >= 0 then
      window = term.base + 1 -- query - key < window
    else
      return nil
    end
  end
  if behind and (kind == "causal" or not window or behind + 1 ~= window) then return nil end
  if window and kind == "all" and not behind then return nil end
  return kind, window
end

-- The bool that says what a mask shows: the mask itself, or of a choice between 0 and a number so low
-- that it hides a key, where each query sees its own place; nil: something else.
function constants.shown(c)
  if c.type == "bool" then return c end
  if uniform(c) == 0 then return full(c.shape, true, "bool") end
  if not c.choice then return nil end
  local shown = c.yes == 0 and c.no <= -1e30 and c.choice or c.no == 0 and c.yes <= -1e30
    and constants.negation(c.choice) or nil
  return shown and constants.seen(shown) and shown or nil
end

-- ------------------------------------------------------------------------------------- as a tensor

-- base + the sum of step[d] * index of dimension d, of type int32 or float32, which broadcasts to
-- the shape.
local function sum_of_indices(c, shape, floats)
  local x
  for d, s in ipairs(c.step) do
    if s ~= 0 and shape[d] > 1 then
      local sizes = {}
      for i = 1, #shape do sizes[i] = i == d and shape[d] or 1 end
      local term = base.view(raw.arange(shape[d]), sizes)
      if floats then term = raw.to(term, "float32") end
      if s ~= 1 then term = raw.mul(term, s) end
      x = x and raw.add(x, term) or term
    end
  end
  if not x then
    local ones = {}
    for i = 1, #shape do ones[i] = 1 end
    return raw.full(ones, c.base, floats and "float32" or "int32")
  end
  return c.base ~= 0 and raw.add(x, c.base) or x
end

-- A constant that broadcasts to this one: dimensions along which nothing changes have size 1.
function constants.compact(c)
  if c.choice then
    return raw.to(raw.where(constants.compact(c.choice), c.yes + 0.0, c.no + 0.0), c.type)
  end
  if c.type ~= "bool" then
    return raw.to(sum_of_indices(c, c.shape, RANK[c.type] >= 4), c.type)
  end
  local x
  for _, term in ipairs(c.all) do
    local holds = raw.ge(sum_of_indices(term, c.shape, false), 0)
    x = x and raw.logical_and(x, holds) or holds
  end
  if x then return x end
  local ones = {}
  for i = 1, #c.shape do ones[i] = 1 end
  return raw.full(ones, c.never and 0 or 1, "bool")
end

function constants.tensor(c)
  return raw.expand(constants.compact(c), c.shape)
end

-- ------------------------------------------------------------------------ choices between two numbers

-- Operators that keep the places of elements, or take some of them, work on the bool of a choice.
for _, name in ipairs{"unsqueeze", "permute", "transpose", "expand", "reshape", "slice", "select"} do
  local f = constants[name]
  constants[name] = function(c, ...)
    if c.choice then return chosen(c, f, ...) end
    return f(c, ...)
  end
end

-- Operators without a form for a choice.
for _, name in ipairs{"add", "sub", "mul", "neg", "range", "counted_by", "floor_divide", "extreme", "cat", "diff",
  "cumsum", "any", "index", "ge", "gt", "le", "lt", "eq", "ne", "both", "either", "negation"} do
  local f = constants[name]
  constants[name] = function(a, b, ...)
    for _, v in ipairs{a, b} do
      if is_constant[v] and v.choice then return nil end
      for _, part in ipairs(type(v) == "table" and not is_constant[v] and v or {}) do
        if part and part.choice then return nil end
      end
    end
    return f(a, b, ...)
  end
end

local to = constants.to
function constants.to(c, type_name)
  if not c.choice then return to(c, type_name) end
  if RANK[type_name] < 4 then return nil end
  return new{shape = c.shape, type = type_name, choice = c.choice, yes = c.yes, no = c.no}
end
