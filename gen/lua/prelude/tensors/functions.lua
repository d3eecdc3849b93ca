-- functions.lua: reductions and products.
local core, base = ...
local append, raw, define, method = core.append, base.raw, base.define, base.method
local misfit, shape_text, dimension = base.misfit, base.shape_text, base.dimension
local dimensions, view = base.dimensions, base.view
local floating, counting = base.floating, base.counting

-- ------------------------------------------------------------------------------------- reductions

-- constant: no gradient flows through it.
local function reduced(operator, x, dims, keep, scalar, constant)
  if #dims == 0 then return x end
  if operator == "sum" then scalar = scalar or 1 end
  return append(operator, {x}, {dims = dims, keep = keep, scalar = scalar, constant = constant})
end
base.reduced = reduced

local function keeps(keep)
  if keep ~= nil and type(keep) ~= "boolean" then
    misfit("whether the dimension stays must be true or false, not %s", base.a(keep))
  end
  return keep
end
base.keeps = keeps

--- # Sums and products
--- F.sum(input, dim?, keepdim = false, dtype?): over a dimension, a list of them, or all.
method("sum", function(input, dim, keepdim, dtype)
  local x = counting(base.typed(input, dtype))
  return reduced("sum", x, dimensions(core.shape(x), dim), keeps(keepdim))
end)

--- F.mean(input, dim?, keepdim = false, dtype?): the mean.
method("mean", function(input, dim, keepdim, dtype)
  local x = base.typed(input, dtype)
  local list, n = dimensions(core.shape(x), dim)
  return reduced("sum", base.need_floating(x), list, keeps(keepdim), 1 / n)
end)

local function correction_of(unbiased, correction)
  if unbiased ~= nil and correction ~= nil then
    misfit("unbiased and correction both say what the sum is divided by: leave one out")
  end
  if correction ~= nil then
    if type(correction) ~= "number" or correction - correction ~= 0 then
      misfit("the correction must be a finite number, not %s", base.a(correction))
    end
    return correction
  end
  if unbiased ~= nil and type(unbiased) ~= "boolean" then
    misfit("whether it is unbiased must be true or false, not %s", base.a(unbiased))
  end
  return unbiased == false and 0 or 1
end

-- x:var(dim, unbiased, keepdim), x:var(dim, {correction = 1, keepdim = false}). As in PyTorch a
-- lone false is `unbiased`, not a dimension.
local function var(x, dims, unbiased, keep, correction)
  if type(dims) == "boolean" then
    if unbiased ~= nil or keep ~= nil then
      misfit("dimensions come first, then whether it is unbiased, and whether the dimension stays")
    end
    dims, unbiased = nil, dims
  end
  correction = correction_of(unbiased, correction)
  local given, shape = base.need_floating(x), core.shape(x)
  local list, n = dimensions(shape, dims)
  if n <= correction then
    misfit("the variance of %d number%s with a correction of %s is not defined; the shape is %s", n,
      n > 1 and "s" or "", correction, shape_text(shape))
  end
  -- A mean over all dimensions broadcasts without keeping them.
  local stays = #list < #shape or keeps(keep)
  x = base.wide(given)
  local mean = reduced("sum", x, list, stays, 1 / n, true)
  local y = reduced("sum", raw.square(raw.sub(x, mean)), list, keeps(keep), 1 / (n - correction))
  return base.narrowed(y, given)
end
--- F.var(input, dim?, unbiased = true, keepdim = false, correction?): the variance; `correction` is subtracted from
--- the count, by default 1.
method("var", function(input, dim, unbiased, keepdim, correction)
  return var(input, dim, unbiased, keepdim, correction)
end)

--- F.std(input, dim?, unbiased = true, keepdim = false, correction?): the standard deviation. No gradient flows where
--- all elements are equal.
method("std", function(input, dim, unbiased, keepdim, correction)
  local variance = var(input, dim, unbiased, keepdim, correction)
  local none = raw.eq(variance, 0)
  return raw.where(none, 0.0, raw.sqrt(raw.where(none, 1.0, variance)))
end)

--- F.amax(input, dim?, keepdim = false): the largest element.
--- F.amin(input, dim?, keepdim = false): the smallest element.
for _, name in ipairs{"amax", "amin"} do
  method(name, function(input, dim, keepdim)
    local x = counting(input)
    return reduced(name, x, dimensions(core.shape(x), dim), keeps(keepdim))
  end)
end

-- The index of the largest, with a size of 1 at dimension d.
local function largest(x, d)
  return append("argmax", {base.need_floating(x)}, {dims = {d}, keep = true})
end

local function without(x, d)
  local shape = core.shape(x)
  table.remove(shape, d + 1)
  return view(x, shape)
end
base.without = without

local function gathered(x, d, index)
  return append("gather", {x, index}, {dims = {d}})
end
base.gathered = gathered

--- F.max(input, dim?, keepdim = false, other?): of all; along a dimension, the values and their indices; or of two
--- tensors.
--- F.min(input, dim?, keepdim = false, other?): likewise.
for _, name in ipairs{"max", "min"} do
  local whole = name == "max" and "amax" or "amin"
  local function of(x, d) return largest(name == "max" and x or raw.neg(x), d) end

  -- x:max(): of all. x:max(dim): the largest along the dimension, and their indices. x:max(y): of both.
  method(name, function(input, dim, keepdim, other)
    local x, keep = input, keepdim
    if other ~= nil then
      if dim ~= nil then misfit("either a dimension or another tensor") end
      dim = base.tensor(other, "other")
    end
    if keep ~= nil and not math.type(dim) then misfit("a dimension that stays has to be named") end
    if dim == nil then return raw[whole](x) end
    if base.is_tensor(dim) then return raw[name .. "imum"](x, dim) end
    local d = dimension(core.shape(x), dim)
    local index = of(x, d)
    local values = gathered(x, d, index)
    if keeps(keep) then return values, index end
    return without(values, d), without(index, d)
  end)

  --- F.argmax(input, dim?, keepdim = false): the index of the largest element along a dimension, or in the flattened
  --- tensor.
  --- F.argmin(input, dim?, keepdim = false): the index of the smallest.
  method("arg" .. name, function(input, dim, keepdim)
    local x, keep = input, keepdim
    if dim == nil then
      local ones = {}
      if keeps(keep) then for i = 1, #core.shape(x) do ones[i] = 1 end end
      return view(of(raw.flatten(x), 0), ones)
    end
    local d = dimension(core.shape(x), dim)
    local index = of(x, d)
    return keeps(keep) and index or without(index, d)
  end)
end

local function norm(x, p, dims, keep)
  local list = dimensions(core.shape(x), dims)
  if p == math.huge then return reduced("amax", raw.abs(x), list, keeps(keep)) end
  if p == -math.huge then return reduced("amin", raw.abs(x), list, keeps(keep)) end
  if p == 0 then return reduced("sum", raw.to(raw.ne(x, 0), "float32"), list, keeps(keep)) end
  if p == 1 then return reduced("sum", raw.abs(x), list, keeps(keep)) end
  local sum = reduced("sum", p == 2 and raw.square(x) or raw.pow(raw.abs(x), p), list, keeps(keep))
  -- The root has gradient 0 at 0: if all are 0, the norm has none.
  local none = raw.eq(sum, 0)
  return raw.where(none, 0.0, raw.pow(raw.where(none, 1.0, sum), 1 / p))
end

--- F.norm(input, p = "fro", dim?, keepdim = false, dtype?): the p-norm; `math.huge` is the largest absolute value.
method("norm", function(input, p, dim, keepdim, out, dtype)
  local x = base.typed(input, dtype)
  p = (p == nil or p == "fro") and 2 or p
  if type(p) ~= "number" or p ~= p then
    misfit("p must be a number, math.huge or 'fro', not %s", math.type(p) and tostring(p) or base.a(p))
  end
  return base.narrowed(norm(base.wide(x), p, dim, keepdim), x)
end)
--- x:norm(input, p = "fro", dim?, keepdim = false, dtype?): the same, as a method.
base.as_method("norm", function(input, p, dim, keepdim, dtype)
  return raw.norm(input, p, dim, keepdim, nil, dtype)
end)

--- F.cumsum(input, dim, dtype?): sums of all elements up to each one.
method("cumsum", function(input, dim, dtype)
  local x = base.typed(input, dtype)
  local d = dimension(core.shape(base.need_floating(x)), dim)
  return base.narrowed(append("cumsum", {x}, {dims = {d}}), x)
end)

-- --------------------------------------------------------------------------------------- products

local BATCH = "abcdefgh"

-- base.float8: how products are rounded to float8 within the forward of a module that float8 names: precision.lua.
local function product(a, b, equation)
  base.check_types(base.need_floating(a), "the first tensor", base.need_floating(b),
    "the second")
  return append("matmul", {a, b}, {equation = equation, float8 = base.float8})
end
base.product = product

-- x times the weight, [out, in] or, if it is `transposed`, [in, out]; plus low.x times low.weight, [out, in], if
-- low is given; plus the bias, unless it is nil. The bias comes last: where ranks have pending sums of the
-- products, one reduction serves both.
local function projected(x, weight, bias, transposed, low)
  local rows = string.sub(BATCH, 1, #core.shape(x) - 1)
  local y = base.stored_product(x, weight, transposed)
    or product(x, weight, string.format(transposed and "%sk,kn->%sn" or "%sk,nk->%sn", rows, rows))
  if low then y = raw.add(y, projected(low.x, low.weight)) end
  return bias == nil and y or raw.add(y, bias)
end

-- A product for each part of the weight; these are joined if the plan takes more than a part.
local function projected_in_parts(x, weights, bias, transposed, low)
  local list, start = {}, 0
  local lows = low and core.parts(low.weight)
  for i, w in ipairs(weights) do
    local size = base.outputs(w, transposed)
    local b = bias and base.narrow(bias, 0, start, size) or nil
    list[i] = projected(x, w, b, transposed, low and {x = low.x, weight = lows[i]})
    start = start + size
  end
  return base.join_of(list, #core.shape(x) - 1)
end

function base.project(x, weight, bias, transposed, low)
  local weights = base.parts_along(weight, transposed and 1 or 0)
  if weights then return projected_in_parts(x, weights, bias, transposed, low) end
  return projected(x, weight, bias, transposed, low)
end

--- F.linear(input, weight, bias?): `x @ weight^T + bias`, of `[..., in]` and `[out, in]`.
method("linear", function(input, weight, bias)
  local x = input
  local function say(format, ...)
    local place = core.place()
    base.fail("%s: " .. format, place == "" and "linear" or place, ...)
  end
  local from, of = core.shape(x), core.shape(base.tensor(weight, "the weight"))
  if #of ~= 2 then
    say("the weight must have two dimensions, out and in, not the shape %s", shape_text(of))
  end
  if #from < 1 or from[#from] ~= of[2] then
    say("an input of shape %s does not fit a weight of shape %s, which takes %d numbers in the "
      .. "input's last dimension", shape_text(from), shape_text(of), of[2])
  end
  local size = bias ~= nil and core.shape(base.tensor(bias, "the bias"))
  if size and (#size ~= 1 or size[1] ~= of[1]) then
    say("a bias of shape %s does not fit a weight of shape %s", shape_text(size), shape_text(of))
  end
  return base.project(x, weight, bias)
end)

-- The letters of the batch dimensions of one operand of matmul, without those of size 1 where the
-- other operand has more; and the tensor without these dimensions.
local function batch_letters(x, shape, other, all)
  local letters, kept = {}, {}
  local n, behind = #shape - 2, #other - #shape
  for i = 1, n do
    local there = i + behind >= 1 and other[i + behind] or 1
    if shape[i] > 1 or there == 1 then
      local at = all - n + i
      letters[#letters + 1] = string.sub(BATCH, at, at)
      kept[#kept + 1] = shape[i]
    end
  end
  kept[#kept + 1] = shape[#shape - 1]
  kept[#kept + 1] = shape[#shape]
  return table.concat(letters), view(x, kept)
end

--- F.matmul(input, other): `[..., m, k]` times `[..., k, n]`, whose leading dimensions broadcast; or vectors `[k]`.
method("matmul", function(input, other)
  local a, b = input, other
  local s, t = core.shape(a), core.shape(base.tensor(b, "the second operand"))
  local function no_fit()
    misfit("shapes %s and %s do not fit: it takes [..., m, k] and [..., k, n], whose leading sizes "
      .. "broadcast", shape_text(s), shape_text(t))
  end
  if #s == 0 or #t == 0 then no_fit() end
  local row, column = #s == 1, #t == 1
  local left = row and {1, s[1]} or s
  local right = column and {t[1], 1} or t
  if left[#left] ~= right[#right - 1] then no_fit() end
  local all = math.max(#left, #right) - 2
  for i = 0, math.min(#left, #right) - 3 do
    local x, y = left[#left - 2 - i], right[#right - 2 - i]
    if x ~= y and x ~= 1 and y ~= 1 then no_fit() end
  end
  -- A vector keeps its one letter and needs no view.
  local before, x = "", a
  if not row then before, x = batch_letters(a, left, right, all) end
  local behind, y = "", b
  if not column then behind, y = batch_letters(b, right, left, all) end
  local batch = {}
  for i = 1, all do
    local letter = string.sub(BATCH, i, i)
    if string.find(before .. behind, letter, 1, true) then batch[#batch + 1] = letter end
  end
  local m, n = row and "" or "m", column and "" or "n"
  return product(x, y, string.format("%s%sk,%sk%s->%s%s%s", before, m, behind, n,
    table.concat(batch), m, n))
end)
