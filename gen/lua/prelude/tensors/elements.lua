-- elements.lua: whole numbers near an element, remainders, signs; what holds for some elements or all; products of
-- them. Made of other operators, with the names, arguments and gradients of torch.
local core, base = ...
local raw, method = base.raw, base.method
local misfit, dimension = base.misfit, base.dimension
local is_tensor, is_floating, floating = base.is_tensor, base.is_floating, base.floating

-- ------------------------------------------------------------------------------------- whole numbers

-- Floats from here on are whole numbers.
local WHOLE = 2.0 ^ 23

-- Without the digits after the point. No gradient flows, as in PyTorch.
local function trunc(x)
  if not is_floating(x) then return x end
  x = raw.detach(x)
  local whole = raw.to(raw.to(raw.clamp(x, -WHOLE, WHOLE), "int32"), core.type(x))
  return raw.where(raw.lt(raw.abs(x), WHOLE), whole, x)
end

local function floor(x)
  if not is_floating(x) then return x end
  local t = trunc(x)
  return raw.sub(t, raw.to(raw.gt(t, x), core.type(x)))
end

--- # Arithmetic
--- F.trunc(input): without the digits behind the point.
method("trunc", function(input, out) return trunc(input) end)
--- F.floor(input): the largest whole number that is not above.
method("floor", function(input, out) return floor(input) end)
--- F.ceil(input): the smallest one that is not below.
method("ceil", function(input, out)
  return is_floating(input) and raw.neg(floor(raw.neg(input))) or input
end)
--- F.round(input, decimals = 0): the nearest whole number, of two the even one; `decimals` is 0.
method("round", function(input, decimals, out)
  if base.whole(decimals == nil and 0 or decimals, "decimals") ~= 0 then misfit("decimals is 0: scale the tensor") end
  local x = input
  if not is_floating(x) then return x end
  local below = floor(x)
  local behind = raw.sub(raw.detach(x), below)
  local is_odd = raw.ne(below, raw.mul(2, floor(raw.mul(below, 0.5))))
  local up = raw.logical_or(raw.gt(behind, 0.5), raw.logical_and(raw.eq(behind, 0.5), is_odd))
  return raw.add(below, raw.to(up, core.type(x)))
end)
--- F.frac(input): the digits behind the point.
method("frac", function(input, out)
  base.need_floating(input)
  return raw.sub(input, trunc(input))
end)

-- -------------------------------------------------------------------------------- what a division leaves

-- Whether one of x and y is negative, and not both.
local function differ_in_sign(x, y)
  return raw.ne(raw.to(raw.lt(x, 0), "int32"), raw.to(raw.lt(y, 0), "int32"))
end

-- The quotient of whole numbers, rounded down, and what is left. Each pass divides in float32 what the last one left.
local function division_of_whole(x, y, passes)
  local kind = core.type(x)
  x, y = raw.to(x, "int64"), raw.to(y, "int64")
  local q, r = nil, x
  for _ = 1, passes do
    local part = raw.to(floor(raw.div(raw.to(r, "float32"), raw.to(y, "float32"))), "int64")
    q, r = q and raw.add(q, part) or part, raw.sub(r, raw.mul(y, part))
  end
  local over = raw.logical_and(raw.ne(r, 0), differ_in_sign(r, y))
  q, r = raw.where(over, raw.sub(q, 1), q), raw.where(over, raw.add(r, y), r)
  local under = raw.ge(raw.abs(r), raw.abs(y))
  return raw.to(raw.where(under, raw.add(q, 1), q), kind), raw.to(raw.where(under, raw.sub(r, y), r), kind)
end

-- The quotient, rounded down or to zero, and what is left.
local function division(x, y, to_zero)
  if not is_tensor(x) and not is_tensor(y) then misfit("one of the two must be a tensor") end
  if y == 0 then misfit("a tensor cannot be divided by 0") end
  for _, v in ipairs{x, y} do
    if not is_tensor(v) and type(v) ~= "number" then misfit("a tensor goes with a tensor or a number, not with %s", base.a(v)) end
  end
  x, y = base.operands(x, y, "int32")
  local q, r
  if is_floating(x) then
    q = (to_zero and trunc or floor)(raw.div(x, y))
    r = raw.sub(x, raw.mul(y, q))
    if to_zero then return q, r end
    local over = raw.logical_and(raw.ne(r, 0), differ_in_sign(r, y)) -- as the quotient was rounded
    return q, raw.where(over, raw.add(r, y), r)
  end
  q, r = division_of_whole(x, y, core.type(x) == "int64" and 3 or 2)
  if not to_zero then return q, r end
  local apart = raw.logical_and(raw.ne(r, 0), differ_in_sign(x, y))
  return raw.where(apart, raw.add(q, 1), q), raw.where(apart, raw.sub(r, y), r)
end

-- Of raw.div: the quotient as PyTorch's rounding_mode has it.
function base.rounded_quotient(x, y, mode)
  if mode ~= "floor" and mode ~= "trunc" then
    misfit('rounding_mode is "floor" or "trunc", not %s', base.a(mode))
  end
  return (division(x, y, mode == "trunc"))
end

local function floor_divide(x, y) return (division(x, y)) end
local function remainder(x, y) return (select(2, division(x, y))) end
core.events.__idiv = core.named("//", floor_divide, false)
core.events.__mod = core.named("%", remainder, false)
--- F.floor_divide(input, other): the quotient, rounded down; `a // b`.
method("floor_divide", function(input, other, out) return floor_divide(input, other) end)
--- F.remainder(input, other): what the division leaves, with the divisor's sign; `a % b`.
method("remainder", function(input, other, out) return remainder(input, other) end)
--- F.fmod(input, other): what the division leaves, with the sign of `input`.
method("fmod", function(input, other, out) return (select(2, division(input, other, true))) end)

-- -------------------------------------------------------------------------------- signs, odd numbers

--- F.sign(input): -1, 0 or 1.
method("sign", function(input, out)
  local x = base.counting(input)
  local kind = core.type(x)
  return raw.sub(raw.to(raw.gt(x, 0), kind), raw.to(raw.lt(x, 0), kind))
end)
--- F.isnan(input): whether it is no number.
method("isnan", function(input) return raw.ne(input, input) end)
--- F.isinf(input): whether it is infinite.
method("isinf", function(input)
  if not is_floating(input) then return raw.ne(input, input) end
  return raw.gt(raw.abs(input), 3.4028234663852886e38)
end)
--- F.isfinite(input): whether it is neither of these.
method("isfinite", function(input)
  if not is_floating(input) then return raw.eq(input, input) end
  return raw.le(raw.abs(input), 3.4028234663852886e38)
end)
--- F.reciprocal(input): `1 / x`.
method("reciprocal", function(input, out) return raw.div(1, floating(input)) end)

--- F.clamp_min(input, min): `F.clamp` from below.
method("clamp_min", function(input, min, out) return raw.clamp(input, min, nil) end)
--- F.clamp_max(input, max): `F.clamp` from above.
method("clamp_max", function(input, max, out) return raw.clamp(input, nil, max) end)

-- ----------------------------------------------------------------------- some, all, and the product

-- The largest or the least truth.
local function truth(name)
  return function(input, dim, keepdim, out)
    local x = core.type(input) == "bool" and input or raw.ne(input, 0)
    return raw.ne(raw[name](raw.to(x, "int32"), dim, keepdim), 0)
  end
end
--- # Sums and products
--- F.any(input, dim?, keepdim = false): whether an element is not 0.
method("any", truth("amax"))
--- F.all(input, dim?, keepdim = false): whether no element is 0.
method("all", truth("amin"))

--- F.prod(input, dim?, keepdim = false, dtype?): the product, of all elements or along one dimension.
method("prod", function(input, dim, keepdim, dtype)
  local x = base.counting(base.typed(input, dtype))
  local d = dim
  if d == nil then
    if keepdim then misfit("a dimension that stays has to be named") end
    x, d = raw.flatten(x), 0
  end
  base.keeps(keepdim)
  d = dimension(core.shape(x), d)
  local kind, all = core.type(x), raw.cumprod(floating(x), d)
  local last = base.narrow(all, d, core.shape(all)[d + 1] - 1, 1)
  if not keepdim then last = base.without(last, d) end
  return raw.to(last, kind)
end)
