-- tensors.lua: the declaration of F's functions, which are also the methods of tensors; their
-- arguments; arithmetic, comparisons, types, and tensors made of nothing.
--
-- A function appends operations (ops.h) by append(operator, {tensors}, {attributes}). Its error
-- messages begin with the name of the function that the plan has called.
local core, base = ...
local fail, append = base.fail, core.append

local F, raw = {}, {}
base.F = F           -- the functions that a plan calls
base.raw = raw       -- the same functions, for use by each other

-- The names of f's parameters are the names of arguments (keywords.c); they, and their order, are
-- PyTorch's. rest: the name of the arguments after all parameters; false: no arguments by name.
local function by_name(rest) return rest == nil or rest end

-- define("cat", f): F.cat(...)
local function define(name, f, rest)
  raw[name] = f
  F[name] = core.named(name, f, false, by_name(rest))
end

-- Only x:NAME(...), if PyTorch's method takes other arguments than its function.
local function as_method(name, f, rest)
  core.methods[name] = core.named(name, f, true, by_name(rest))
end

-- method("relu", f): F.relu(x, ...) and x:relu(...)
local function method(name, f, rest)
  raw[name] = f
  F[name] = core.named(name, f, true, by_name(rest))
  core.methods[name] = F[name]
end

base.define, base.method, base.as_method = define, method, as_method

-- ----------------------------------------------------------------------------- what functions take

local function misfit(format, ...)
  fail("%s: " .. format, core.called(), ...)
end
base.misfit = misfit

local is_tensor = core.is_tensor
base.is_tensor = is_tensor

-- A tensor among the arguments that are not the first.
function base.tensor(v, what)
  if not is_tensor(v) then
    local hint = base.kind(v) == "description" and ", which is for a batch: F has tensors" or ""
    misfit("%s must be a tensor, not %s%s", what, base.a(v), hint)
  end
  return v
end

-- "[20, 10]"
function base.shape_text(shape) return "[" .. table.concat(shape, ", ") .. "]" end
local shape_text = base.shape_text

function base.elements(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

function base.same_shape(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

function base.whole(v, what, least, most)
  local n = math.type(v) and math.tointeger(v)
  if not n then misfit("%s must be %s", what, base.not_whole(v)) end
  if least and n < least then misfit("%s must be at least %d, not %d", what, least, n) end
  if most and n > most then misfit("%s must be at most %d, not %d", what, most, n) end
  return n
end

-- A dimension of a shape, from 0, or from the end if negative; `more` dimensions more are allowed.
function base.dimension(shape, dim, more)
  local n, d = #shape + (more or 0), base.whole(dim, "a dimension")
  if d < -n or d >= n then
    misfit("a tensor of shape %s has no dimension %d", shape_text(shape), d)
  end
  return d < 0 and d + n or d
end

-- The length of a list without other keys.
function base.list(list, what)
  return base.length(list, core.called() .. ": " .. what)
end

-- A dimension, a list of them, or nil for all. Returns a sorted list, from 0, and the product of
-- their sizes.
function base.dimensions(shape, dims)
  local named, list, count = {}, {}, 1
  if dims == nil then dims = {} end
  if base.kind(dims) ~= "table" then dims = {dims} end
  local n = base.list(dims, "what names dimensions")
  if n == 0 then
    for d = 0, #shape - 1 do named[d] = true end
  else
    if n > #shape then misfit("%d dimensions of a tensor of shape %s", n, shape_text(shape)) end
    for i = 1, n do
      local d = base.dimension(shape, rawget(dims, i))
      if named[d] then misfit("a dimension is named twice") end
      named[d] = true
    end
  end
  for d = 0, #shape - 1 do
    if named[d] then
      list[#list + 1] = d
      count = count * shape[d + 1]
    end
  end
  return list, count
end

-- Integers: a list of them, or as separate arguments.
function base.integers(what, first, ...)
  local list, given, n = {}, {first, ...}, select("#", first, ...)
  if base.kind(first) == "table" then
    if n > 1 then misfit("%ss are a list or stand one after the other, not both", what) end
    given, n = first, base.list(first, "what names " .. what .. "s")
  end
  if n > 64 then misfit("%d %ss are too many", n, what) end
  for i = 1, n do list[i] = base.whole(rawget(given, i), "a " .. what) end
  return list
end

function base.options_of(t, allowed)
  return base.options(t, core.called(), allowed)
end

-- ------------------------------------------------------------------------------------------- types

local RANK = {bool = 1, int32 = 2, int64 = 3, bfloat16 = 4, float32 = 5}
base.type_ranks = RANK
local NAMES = {"bool", "int32", "int64", "bfloat16", "float32"}
local LARGEST_INT32, LARGEST_EXACT = 2^31 - 1, 2^53

local function rank(x) return RANK[core.type(x)] end

local function is_floating(x) return rank(x) >= RANK.bfloat16 end
base.is_floating = is_floating

local function cast(x, to)
  if core.type(x) == to then return x end
  return append("cast", {x}, {type = to})
end

-- For functions that do not return integers for integers.
local function floating(x)
  return is_floating(x) and x or cast(x, "float32")
end
base.floating = floating

-- x in float32, for functions that compute in it; and their result y in x's type.
local function wide(x) return cast(x, "float32") end
local function narrowed(y, x) return cast(y, is_floating(x) and core.type(x) or "float32") end
base.wide, base.narrowed = wide, narrowed

-- For functions that count bools as 0 and 1.
local function counting(x)
  return core.type(x) == "bool" and cast(x, "int32") or x
end
base.counting = counting

function base.need_floating(x)
  if not is_floating(x) then
    misfit('it takes float32, not %s: x:to("float32") makes it so', core.type(x))
  end
  return x
end

-- Checks that two tensors have one type, for products and for functions that insert elements.
function base.check_types(a, what_a, b, what_b)
  local s, t = core.type(a), core.type(b)
  if s == t then return end
  local narrow = (s == "bfloat16" or t == "bfloat16") and "bfloat16" or "float32"
  misfit('%s of line %d is %s, and %s of line %d is %s: cast one of them, as in x:to("%s")', what_a,
    core.line_of_tensor(a), s, what_b, core.line_of_tensor(b), t, narrow)
end

function base.need_whole(x, what)
  local r = rank(base.tensor(x, what))
  if r ~= RANK.int32 and r ~= RANK.int64 then
    misfit("%s must be whole numbers, int32 or int64, not %s", what, core.type(x))
  end
  return x
end

-- Checks indices whose range the plan declares, while it is read.
local function check_taken(x, what, below, ignored)
  local low, high = core.numbers_taken(x)
  if not low then return end
  local is_above = high >= below and not (ignored and ignored >= below)
  local is_below = low < 0 and not (ignored and ignored < 0)
  if is_above or is_below then
    misfit("%s may hold each number from %d to %d, and the valid ones are 0 to %d", what, low, high,
      below - 1)
  end
end

-- Indices from 0 to below - 1, or `ignored`, if given. They are int32 everywhere: a dimension has
-- fewer elements. Computed ones that may be out of range are checked in the step. The number that fills a
-- smaller batch up is ignored, too. user: who takes them, in messages; the function that is called.
function base.indices(x, what, below, ignored, user)
  base.need_whole(x, what)
  check_taken(x, what, below, ignored)
  local use = core.index_use(x, below, ignored, user or core.called())
  local filling = ignored and core.filling(x, ignored)
  if filling then x = raw.where(raw.eq(x, filling), ignored, x) end
  if not use then return cast(x, "int32") end
  return append("index_within", {x}, {below = below, ignored = ignored or 0, use = use})
end

-- A number in an operation with a tensor: integers fit any type; others turn integers into float32.
local function number_rank(v)
  if v ~= v then misfit("a tensor cannot be computed with the number nan") end
  if math.type(v) ~= "integer" then return RANK.float32 end
  if math.abs(v) > LARGEST_EXACT then
    misfit("the whole number %d is too large to meet a tensor", v)
  end
  return math.abs(v) > LARGEST_INT32 and RANK.int64 or RANK.int32
end

local function finite(v)
  if v - v ~= 0 then
    misfit("a tensor cannot be computed with the number %s", v == v and tostring(v) or "nan")
  end
  return v
end

-- The number as a tensor without dimensions, or of this shape.
local function full(v, type_name, shape)
  return append("full", {}, {scalar = v, type = type_name, shapes = {shape or {}}})
end

-- A floating tensor without dimensions does not widen one with dimensions, as in PyTorch.
local function without_numbers(a, b, high)
  local m, n = #core.shape(a), #core.shape(b)
  if m == 0 and n > 0 and is_floating(b) then return rank(b) end
  if n == 0 and m > 0 and is_floating(a) then return rank(a) end
  return high
end

-- Two operands, tensors or one of them a number, as tensors of one type: the higher one. If no
-- tensor is floating it is at least `least`, and the number's.
local function operands(a, b, least)
  local high, at_least = RANK.bool, RANK[least or "bool"]
  local x, y = is_tensor(a), is_tensor(b)
  if x then
    high = rank(a)
  elseif type(a) == "number" then
    at_least = math.max(at_least, number_rank(a))
  end
  if y then
    high = math.max(high, rank(b))
  elseif type(b) == "number" then
    at_least = math.max(at_least, number_rank(b))
  end
  if high < RANK.bfloat16 then high = math.max(high, at_least) end
  if x and y then high = without_numbers(a, b, high) end
  local to = NAMES[high]
  return x and cast(a, to) or full(a, to), y and cast(b, to) or full(b, to)
end

base.operands = operands

local function check_operand(v)
  if not is_tensor(v) and type(v) ~= "number" then
    misfit("a tensor goes with a tensor or a number, not with %s", base.a(v))
  end
end

local function check_operands(a, b)
  check_operand(a)
  check_operand(b)
  if not is_tensor(a) and not is_tensor(b) then misfit("one of the two must be a tensor") end
end

-- Checks that two shapes broadcast, for functions of several operations: the error has their name.
function base.check_broadcast(a, b, what)
  for i = 0, math.min(#a, #b) - 1 do
    local x, y = a[#a - i], b[#b - i]
    if x ~= y and x ~= 1 and y ~= 1 then
      misfit("%s of shape %s does not fit the shape %s", what, shape_text(b), shape_text(a))
    end
  end
end

-- -------------------------------------------------------------------------------------- arithmetic

-- A number, or the default for nil.
local function number(value, default, what)
  if value == nil then return default end
  if type(value) ~= "number" or value ~= value then
    misfit("%s must be a number, not %s", what, value == value and base.a(value) or "nan")
  end
  return value
end
base.number_or = number

-- Both F.add(a, b) and a + b. by_name: the function for plans, if it takes more arguments.
local function arithmetic(name, sign, event, f, by_name)
  local function checked(input, other)
    check_operands(input, other)
    return f(input, other)
  end
  raw[name] = checked
  F[name] = core.named(name, by_name or checked, false, true)
  core.methods[name] = F[name]
  core.events[event] = core.named(sign, checked, false)
end

-- A number in integer or floating arithmetic; bools count as 0 and 1.
local function simple(operator)
  return function(a, b)
    if type(a) == "number" then finite(a) end
    if type(b) == "number" then finite(b) end
    return append(operator, {operands(a, b, "int32")})
  end
end

local function scaled(x, by)
  return append("scale", {floating(x)}, {scalar = finite(by)})
end
base.scaled = scaled

-- An integer tensor times an integer stays integer.
local function is_scaling(x, number)
  return type(number) == "number" and (is_floating(x) or math.type(number) == "float")
end

-- add(input, other, {alpha =}): the other, alpha times.
local function times(other, alpha)
  alpha = number(alpha, 1, "alpha")
  return alpha == 1 and other or other * alpha
end
--- # Arithmetic
--- F.add(input, other, alpha = 1): `input + alpha * other`, of tensors or a tensor and a number; `a + b`.
arithmetic("add", "+", "__add", simple("add"),
  function(input, other, alpha)
    check_operands(input, other)
    return raw.add(input, times(other, alpha))
  end)
--- F.sub(input, other, alpha = 1): `input - alpha * other`; `a - b`.
arithmetic("sub", "-", "__sub", simple("sub"),
  function(input, other, alpha)
    check_operands(input, other)
    return raw.sub(input, times(other, alpha))
  end)
--- F.mul(input, other): the product of elements; `a * b`.
arithmetic("mul", "*", "__mul", function(a, b)
  if type(a) == "number" then a, b = b, a end
  if is_scaling(a, b) then return scaled(a, b) end
  return simple("mul")(a, b)
end)
--- F.div(input, other, rounding_mode?): the quotient of elements; `a / b`. A tensor cannot be divided by the number 0.
--- `rounding_mode` is `"floor"` or `"trunc"`.
arithmetic("div", "/", "__div", function(a, b)
  if b == 0 then misfit("a tensor cannot be divided by 0") end
  if type(b) == "number" then return scaled(a, 1 / finite(b)) end
  if type(a) == "number" then finite(a) end
  return append("div", {operands(a, b, "float32")})
end, function(input, other, rounding_mode)
  if rounding_mode ~= nil then return base.rounded_quotient(input, other, rounding_mode) end
  return raw.div(input, other)
end)
--- F.pow(input, exponent): `a ^ b`.
arithmetic("pow", "^", "__pow", function(a, b)
  if is_tensor(b) then
    if type(a) == "number" then finite(a) end
    return append("pow", {operands(a, b, "float32")})
  end
  finite(b)
  if b == 2 then return append("square", {counting(a)}) end
  if b == 0.5 then return append("sqrt", {floating(a)}) end
  return append("power", {floating(a)}, {scalar = b})
end, function(input, exponent) return raw.pow(input, exponent) end)

-- Integers are never NaN, which the row for floating types tests.
--- F.maximum(input, other): the larger one of two elements.
--- F.minimum(input, other): the smaller one of two elements.
--- F.lt(input, other): whether `a < b`. Lua's own comparison signs do not work on tensors.
--- F.gt(input, other): whether `a > b`.
for name, better in pairs{maximum = "gt", minimum = "lt"} do
  method(name, function(input, other)
    check_operands(input, other)
    local x, y = operands(input, other, "int32")
    if is_floating(x) then return append(name, {x, y}) end
    return append("where", {append(better, {x, y}), x, y})
  end)
end

--- F.relu(input): 0 for negative elements.
method("relu", function(input, inplace) return append("relu", {counting(input)}) end)
--- F.square(input): the square.
--- F.neg(input): `-a`.
for _, name in ipairs{"square", "neg"} do
  method(name, function(input) return append(name, {counting(input)}) end)
end
-- Lua passes the operand twice.
core.events.__unm = core.named("-", function(x, _) return raw.neg(x) end, true)

--- F.exp(input): e to the power of each element.
--- F.expm1(input): `exp(x) - 1`, exact near 0.
--- F.log(input): the natural logarithm.
--- F.log1p(input): `log(1 + x)`, exact near 0.
--- F.sqrt(input): the square root.
--- F.rsqrt(input): `1 / sqrt(x)`.
--- F.sin(input): the sine.
--- F.cos(input): the cosine.
--- F.erf(input): the error function.
--- F.erfinv(input): the inverse of the error function.
--- F.lgamma(input): the logarithm of the gamma function's absolute value.
--- F.digamma(input): the derivative of `F.lgamma`.
--- F.sigmoid(input): `1 / (1 + exp(-x))`.
--- F.tanh(input): the hyperbolic tangent.
for _, name in ipairs{"exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "erf", "erfinv", "lgamma", "digamma",
  "sigmoid", "tanh"} do
  method(name, function(input) return append(name, {floating(input)}) end)
end
--- F.silu(input): `x * sigmoid(x)`.
method("silu", function(input, inplace) return append("silu", {floating(input)}) end)

--- F.abs(input): the absolute value.
method("abs", function(input)
  if is_floating(input) then return append("abs", {input}) end
  return raw.maximum(input, raw.neg(input))
end)

--- F.gelu(input, approximate = "none"): by the error function, or with `"tanh"` PyTorch's approximation.
method("gelu", function(input, approximate)
  if approximate ~= nil and approximate ~= "none" and approximate ~= "tanh" then
    misfit('the approximation is "none" or "tanh", not %s', base.a(approximate))
  end
  return append(approximate == "tanh" and "gelu_tanh" or "gelu", {floating(input)})
end)

-- -------------------------------------------------------------------------------------- conditions

--- F.eq(input, other): whether elements are equal, as bools.
--- F.ne(input, other): whether they differ.
--- F.le(input, other): whether `a <= b`.
--- F.ge(input, other): whether `a >= b`.
for _, name in ipairs{"eq", "ne", "lt", "le", "gt", "ge"} do
  method(name, function(input, other)
    check_operands(input, other)
    return append(name, {operands(input, other)})
  end)
end

-- Operators that Lua has and tensors do not: the error names the function. Lua turns > and >= into
-- < and <=.
for event, meant in pairs{
  __lt = "< and > give one true or false: write x:lt(y) or x:gt(y)",
  __le = "<= and >= give one true or false: write x:le(y) or x:ge(y)",
  __eq = "== gives one true or false: write x:eq(y)",
  __band = "& is for whole numbers: write x:logical_and(y)",
  __bor = "| is for whole numbers: write x:logical_or(y)",
  __bnot = "~ is for whole numbers: write x:logical_not()",
  __concat = ".. joins texts: write tostring(x), or F.cat{x, y}",
} do
  core.events[event] = function(_, _) base.fail("of tensors %s", meant) end
end

--- F.logical_and(input, other): both, of bools.
--- F.logical_or(input, other): either, of bools.
for _, name in ipairs{"logical_and", "logical_or"} do
  method(name, function(input, other)
    return append(name, {input, base.tensor(other, "the second operand")})
  end)
end
--- F.logical_not(input): the opposite, of bools.
method("logical_not", function(input) return append("logical_not", {input}) end)

local function need_bool(x, what)
  base.tensor(x, what)
  if core.type(x) ~= "bool" then
    misfit("%s must be of type bool, such as x:gt(0), not %s", what, core.type(x))
  end
  return x
end

--- F.where(condition, input, other): `input` where the condition is true, else `other`; tensors or numbers.
define("where", function(condition, input, other)
  need_bool(condition, "the condition")
  if input == nil and other == nil then
    misfit("say input and other: how many places a condition holds at is not a size that a plan knows")
  end
  check_operand(input)
  check_operand(other)
  return append("where", {condition, operands(input, other)})
end)
--- x:where(input, condition, other): `F.where(condition, x, other)`.
as_method("where", function(input, condition, other) return raw.where(condition, input, other) end)

--- F.masked_fill(input, mask, value): the number `value` where the mask, of bools, is true.
method("masked_fill", function(input, mask, value)
  local x = input
  need_bool(mask, "the mask")
  if type(value) ~= "number" then misfit("the value must be a number, not %s", base.a(value)) end
  base.check_broadcast(core.shape(x), core.shape(mask), "a mask")
  if #core.shape(mask) > #core.shape(x) then
    misfit("a mask of shape %s has more dimensions than the shape %s",
      shape_text(core.shape(mask)), shape_text(core.shape(x)))
  end
  return append("where", {mask, operands(value, x)})
end)

-- ------------------------------------------------------------------------- types, and no gradients

local TYPES = {"float32", "bfloat16", "int32", "int64", "bool"}

local INSTEAD = {float16 = "bfloat16, which has 16 bits and the range of float32", half = "bfloat16, which has 16 bits and the "
  .. "range of float32", float64 = "float32", double = "float32", float = "float32", long = "int64", int = "int32", int16 = "int32",
  int8 = "int32", uint8 = "int32", short = "int32"}
-- What to say of a type that there is not.
function base.type_instead(v) return INSTEAD[v] and ": take " .. INSTEAD[v] or "" end

local function type_name(v)
  for _, name in ipairs(TYPES) do
    if v == name then return name end
  end
  misfit("a type is one of %s, not %s%s", table.concat(TYPES, ", "), base.a(v), base.type_instead(v))
end
base.type_name = type_name

-- x:to("int32"), x:to(y): as the tensor y. Of bool: whether it is not 0.
local function to(input, dtype)
  local name = is_tensor(dtype) and core.type(dtype) or type_name(dtype)
  if name == "bool" and core.type(input) ~= "bool" then return raw.ne(input, 0) end
  return cast(input, name)
end
--- F.to(input, dtype, other?): casts to `"float32"`, `"bfloat16"`, `"int32"`, `"int64"` or `"bool"`, or to the type
--- of the tensor `other`.
method("to", function(input, dtype, non_blocking, copy, memory_format, other, device, layout, pin_memory)
  if dtype == nil and other == nil then misfit("say dtype, such as x:to(\"float32\")") end
  return to(input, dtype == nil and other or dtype)
end)
--- F.cast(input, dtype): as `F.to`.
method("cast", to)

-- Casts to the type of an argument dtype, if there is one.
function base.typed(x, dtype)
  if dtype == nil then return x end
  return to(x, dtype)
end

-- The same values, through which no gradient flows.
--- F.detach(input): the same values, through which no gradient flows.
method("detach", function(input)
  return append("view", {input}, {shapes = {core.shape(input)}, constant = true})
end)

--- F.size(input, dim?): the size of a dimension, or the list of all sizes. `x.shape` is the list, counted from 1 as
--- lists of Lua are; `x.dtype` is the type.
method("size", function(input, dim)
  local shape = core.shape(input)
  if dim == nil then return shape end
  return shape[base.dimension(shape, dim) + 1]
end)
--- F.dim(input): the number of dimensions.
method("dim", function(input) return #core.shape(input) end)

-- ------------------------------------------------------------------------- tensors made of nothing

local MAX_SIZE = 1 << 40

-- Sizes, as a list or as separate arguments.
function base.given_sizes(...)
  local list = base.integers("size", ...)
  for _, size in ipairs(list) do
    if size < 1 or size > MAX_SIZE then
      misfit("a size must be at least 1 and at most 2^40, not %d", size)
    end
  end
  if #list > 8 then misfit("a tensor has at most 8 dimensions, not %d", #list) end
  return list
end

--- F.full(size, fill_value, dtype?): a tensor of one number; by default float32, or int32 for a whole number.
define("full", function(size, fill_value, dtype, layout, device, requires_grad, pin_memory)
  local sizes, value, name = size, fill_value, dtype
  if type(value) ~= "number" then misfit("the value must be a number, not %s", base.a(value)) end
  local own = NAMES[number_rank(value)]
  name = name == nil and own or type_name(name)
  if name == "bool" and value ~= 0 then value = 1 end
  if RANK[name] < math.min(RANK[own], RANK.bfloat16) and name ~= "bool" then
    misfit("the value %s does not fit %s", value, name)
  end
  return full(value, name, base.given_sizes(sizes))
end)

--- F.zeros(...): of sizes, `F.zeros(4, 6)` or `F.zeros{4, 6, dtype = "int32"}`.
--- F.ones(...): likewise.
for name, value in pairs{zeros = 0, ones = 1} do
  local by_name = core.named(name, function(size, dtype, layout, device, requires_grad, pin_memory)
    return full(value, dtype == nil and "float32" or type_name(dtype), base.given_sizes(size))
  end, false, true)
  define(name, function(...)
    local given, options = {...}, {}
    local last = given[#given]
    if base.kind(last) == "table" then
      for key, v in pairs(last) do
        if type(key) == "string" then options[key] = v end
      end
      local has_sizes = rawlen(last) > 0 or #given == 1 and options.size == nil
      given[#given] = has_sizes and table.move(last, 1, rawlen(last), 1, {}) or nil
    end
    if options.size == nil then options.size = #given > 0 and base.given_sizes(table.unpack(given)) or nil end
    return by_name(options)
  end, false)
end

-- 0 .. n - 1
local function index(n)
  return append("index", {}, {type = "int32", dims = {0}, shapes = {{n}}})
end
base.index_row = index

--- F.arange(start, end?, step = 1, dtype?): numbers from `start` to before `end`; `F.arange(n)` from 0. Whole numbers
--- give int32.
define("arange", function(start, end_, step, dtype, layout, device, requires_grad, pin_memory)
  local from, to = start, end_
  if to == nil then from, to = 0, from end
  if from == nil then from = 0 end
  local given, whole = {from, to, step == nil and 1 or step}, true
  for i = 1, 3 do
    local v = given[i]
    if type(v) ~= "number" then misfit("it takes numbers, not %s", base.a(v)) end
    whole = number_rank(finite(v)) == RANK.int32 and whole
  end
  step = given[3]
  if step == 0 then misfit("the step must not be 0") end
  local n = math.ceil((to - from) / step)
  if n < 1 or n > LARGEST_INT32 or whole and math.abs(to - from) > LARGEST_INT32 then
    misfit("there must be 1 to 2^31 - 1 numbers from %s to %s, not %s", from, to, n)
  end
  local x = index(math.tointeger(n))
  if not whole then x = cast(x, "float32") end
  if step ~= 1 then x = raw.mul(x, step) end
  return base.typed(from ~= 0 and raw.add(x, from) or x, dtype)
end)
