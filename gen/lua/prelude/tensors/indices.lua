-- indices.lua: functions that choose elements by their indices.
local core, base = ...
local append, raw, define, method = core.append, base.raw, base.define, base.method
local misfit, shape_text, dimension = base.misfit, base.shape_text, base.dimension
local view, gathered = base.view, base.gathered

-- ---------------------------------------------------------------------------------------- sorting

local function order(x, d, descending)
  if descending ~= nil and type(descending) ~= "boolean" then
    misfit("whether it descends must be true or false, not %s", base.a(descending))
  end
  return append("argsort", {base.need_floating(x)}, {dims = {d}, descending = descending and 1 or 0})
end

local function sorted_dim(x, dim)
  return dimension(core.shape(x), dim == nil and -1 or dim)
end

-- Equal elements keep their order, requested or not.
local function check_stable(stable)
  if stable ~= nil and type(stable) ~= "boolean" then
    misfit("stable must be true or false, not %s", base.a(stable))
  end
end

--- # Indices
--- F.sort(input, dim = -1, descending = false, stable?): the values in order, and their indices; equal elements keep
--- their order.
method("sort", function(input, dim, descending, stable)
  local x = input
  check_stable(stable)
  local d = sorted_dim(x, dim)
  local index = order(x, d, descending)
  return gathered(x, d, index), index
end)

--- F.argsort(input, dim = -1, descending = false, stable?): the indices.
method("argsort", function(input, dim, descending, stable)
  check_stable(stable)
  return order(input, sorted_dim(input, dim), descending)
end)

--- F.topk(input, k, dim = -1, largest = true, sorted = true): the k largest values in order, and their indices.
method("topk", function(input, k, dim, largest, sorted)
  local x = input
  if sorted ~= nil and type(sorted) ~= "boolean" then
    misfit("sorted must be true or false, not %s", base.a(sorted))
  end
  local d = sorted_dim(x, dim)
  k = base.whole(k, "k", 1)
  if k > core.shape(x)[d + 1] then
    misfit("dimension %d of the shape %s has no %d elements", d, shape_text(core.shape(x)), k)
  end
  if largest == nil then largest = true end
  local index = base.narrow(order(x, d, largest), d, 0, k)
  return gathered(x, d, index), index
end)

-- --------------------------------------------------------------------------------------- choosing

-- Checks that an index has x's number of dimensions and is no larger, except at d.
local function check_index(x, d, index)
  local a, b = core.shape(x), core.shape(index)
  local fits = #a == #b
  for i = 1, #a do fits = fits and (i == d + 1 or b[i] <= a[i]) end
  if not fits then
    misfit("an index of shape %s does not fit the shape %s along dimension %d", shape_text(b),
      shape_text(a), d)
  end
end

-- The corner of x with the sizes of `shape`, except along d.
local function corner(x, d, shape)
  for i, size in ipairs(shape) do
    if i ~= d + 1 then x = base.narrow(x, i - 1, 0, size) end
  end
  return x
end

--- F.gather(input, dim, index): elements at indices along a dimension.
method("gather", function(input, dim, index, sparse_grad)
  local x = input
  local d = dimension(core.shape(x), dim)
  index = base.indices(index, "the index", core.shape(x)[d + 1])
  check_index(x, d, index)
  return gathered(corner(x, d, core.shape(index)), d, index)
end)

-- The values to put into x's corner: a part of the source of the index's shape, of x's type.
local function source(x, index, src)
  local shape = core.shape(index)
  if type(src) == "number" then src = raw.full(shape, src, core.type(x)) end
  base.tensor(src, "the source")
  local there = core.shape(src)
  local fits = #there == #shape
  for i = 1, #shape do fits = fits and there[i] >= shape[i] end
  if not fits then
    misfit("a source of shape %s does not fit an index of shape %s", shape_text(there),
      shape_text(shape))
  end
  base.check_types(x, "the tensor", src, "the source")
  for i, size in ipairs(shape) do src = base.narrow(src, i - 1, 0, size) end
  return src
end

-- x with f's result in the corner, which has the sizes of `shape`, except along d; from dimension i
-- on.
local function in_corner(x, d, shape, i, f)
  local own = core.shape(x)
  while i <= #shape and (i == d + 1 or own[i] == shape[i]) do i = i + 1 end
  if i > #shape then return f(x) end
  local rest = base.narrow(x, i - 1, shape[i], own[i] - shape[i])
  local part = in_corner(base.narrow(x, i - 1, 0, shape[i]), d, shape, i + 1, f)
  return base.joined({part, rest}, i - 1)
end

--- F.scatter(input, dim, index, src?, value?): with the elements of `src`, or a number, at the indices.
method("scatter", function(input, dim, index, src, value, reduce)
  local x = input
  if src ~= nil and value ~= nil then misfit("it takes src or value, not both") end
  if src == nil then src = value end
  local d = dimension(core.shape(base.need_floating(x)), dim)
  index = base.indices(index, "the index", core.shape(x)[d + 1])
  check_index(x, d, index)
  src = source(x, index, src)
  return in_corner(x, d, core.shape(index), 1, function(part)
    return base.narrowed(append("scatter", {part, index, src}, {dims = {d}}), x)
  end)
end)

--- F.scatter_add(input, dim, index, src): with these added at the indices.
method("scatter_add", function(input, dim, index, src)
  local x = input
  local d = dimension(core.shape(base.need_floating(x)), dim)
  index = base.indices(index, "the index", core.shape(x)[d + 1])
  check_index(x, d, index)
  src = source(x, index, src)
  return in_corner(x, d, core.shape(index), 1, function(part)
    local sum = append("scatter_add", {src, index}, {dims = {d}, shapes = {core.shape(part)}})
    return base.narrowed(raw.add(part, sum), x)
  end)
end)

-- Of several numbers for one index the last one; 0 for an index without any. By floats, which are exact up to 2^24.
local function last_of_indices(part, d, index, numbers, n)
  if n > 1 << 24 then misfit("%d elements along a dimension are above 2^24", n) end
  local last = append("scatter", {raw.full(core.shape(part), 0, "float32"), index, raw.to(numbers, "float32")}, {dims = {d}})
  return raw.to(last, "int32")
end

-- The extreme of `part` and of the elements that have each index, and no gradient. has: whether an element has it.
local function extreme_of_indices(part, d, index, src, is_max, has)
  local descending = order(src, d, not is_max)
  local last = last_of_indices(part, d, gathered(index, d, descending), descending, core.shape(src)[d + 1])
  local found = gathered(src, d, last)
  return raw.where(has, is_max and raw.maximum(part, found) or raw.minimum(part, found), part)
end

-- The gradient of an extreme goes to all that are equal to it, in equal parts. is_part: whether `part` counts.
local function spread_gradient(y, part, d, index, src, is_part)
  y = raw.detach(y)
  local hits = raw.to(raw.eq(raw.detach(src), gathered(y, d, index)), "float32")
  local own = is_part and raw.to(raw.eq(raw.detach(part), y), "float32") or nil
  local sizes = {dims = {d}, shapes = {core.shape(part)}}
  local count = append("scatter_add", {hits, index}, sizes)
  count = raw.clamp(own and raw.add(own, count) or count, 1)
  local share = raw.div(hits, gathered(count, d, index))
  local sum = append("scatter_add", {raw.mul(raw.where(raw.gt(hits, 0), src, 0.0), share), index}, sizes)
  if own then sum = raw.add(sum, raw.mul(part, raw.div(own, count))) end
  return raw.add(y, raw.sub(sum, raw.detach(sum)))
end

-- The product of the elements that have each index: of those side by side, in the order of their indices, step by step
-- twice as many.
local function product_of_indices(part, d, index, src, has)
  local ascending = order(raw.to(index, "float32"), d, false)
  local at, x, n, by = gathered(index, d, ascending), gathered(src, d, ascending), core.shape(src)[d + 1], 1
  while by < n do
    local function upper(v) return base.narrow(v, d, by, n - by) end
    local function lower(v) return base.narrow(v, d, 0, n - by) end
    local y = raw.mul(upper(x), raw.where(raw.eq(upper(at), lower(at)), lower(x), 1.0))
    x, by = base.joined({base.narrow(x, d, 0, by), y}, d), 2 * by
  end
  local row, sizes = base.index_row(n), {}
  for i = 1, #core.shape(src) do sizes[i] = i == d + 1 and n or 1 end
  local last = last_of_indices(part, d, at, raw.expand(view(row, sizes), core.shape(src)), n)
  return raw.where(has, gathered(x, d, last), 1.0)
end

local REDUCTIONS = {sum = true, prod = true, mean = true, amax = true, amin = true}

--- F.scatter_reduce(input, dim, index, src, reduce, include_self = true): with the `"sum"`, `"prod"`, `"mean"`, `"amax"` or
--- `"amin"` of the elements of `src` that have an index; with include_self of the tensor's own element, too.
method("scatter_reduce", function(input, dim, index, src, reduce_, include_self)
  local x = input
  local d = dimension(core.shape(base.need_floating(x)), dim)
  if not REDUCTIONS[reduce_] then misfit('reduce is "sum", "prod", "mean", "amax" or "amin", not %s', base.a(reduce_)) end
  if include_self == nil then include_self = true end
  base.boolean(include_self, "include_self")
  index = base.indices(index, "the index", core.shape(x)[d + 1])
  check_index(x, d, index)
  src = source(x, index, src)
  return in_corner(x, d, core.shape(index), 1, function(part)
    local sizes = {dims = {d}, shapes = {core.shape(part)}}
    local count = append("scatter_add", {raw.full(core.shape(index), 1, "float32"), index}, sizes)
    local has = raw.gt(count, 0)
    local y
    if reduce_ == "sum" or reduce_ == "mean" then
      local own = include_self and part or raw.where(has, 0.0, part)
      y = raw.add(own, append("scatter_add", {src, index}, sizes))
      if reduce_ == "mean" then y = raw.div(y, raw.clamp(raw.add(count, include_self and 1 or 0), 1)) end
    elseif reduce_ == "prod" then
      y = raw.mul(include_self and part or raw.where(has, 1.0, part), product_of_indices(part, d, index, src, has))
    else
      local is_max = reduce_ == "amax"
      local own = include_self and part or raw.where(has, is_max and -math.huge or math.huge, part)
      y = extreme_of_indices(raw.detach(own), d, index, raw.detach(src), is_max, has)
      y = raw.where(has, spread_gradient(y, part, d, index, src, include_self), part)
    end
    return base.narrowed(y, x)
  end)
end)

local function cumulative_extreme(x, dim, is_max)
  local d = dimension(core.shape(base.need_floating(x)), dim)
  local y, at = append("cummax", {x}, {dims = {d}, least = is_max and 0 or 1})
  return base.narrowed(y, x), at
end

--- F.cummax(input, dim): the largest of all elements up to each one, and its index.
method("cummax", function(input, dim) return cumulative_extreme(input, dim, true) end)
--- F.cummin(input, dim): the smallest one, and its index.
method("cummin", function(input, dim) return cumulative_extreme(input, dim, false) end)

local function check_ids(ids, below)
  ids = base.indices(ids, "the indices", below)
  if #core.shape(ids) ~= 1 then
    misfit("the indices must have one dimension, not the shape %s", shape_text(core.shape(ids)))
  end
  return ids
end

--- F.index_select(input, dim, index): indices of a dimension.
method("index_select", function(input, dim, index)
  local x, ids = input, index
  local d = dimension(core.shape(x), dim)
  return append("index_select", {x, check_ids(ids, core.shape(x)[d + 1])}, {dims = {d}})
end)

--- F.index_add(input, dim, index, source, alpha = 1): with `alpha * source` added at indices of a dimension.
method("index_add", function(input, dim, index, source, alpha)
  local x, ids, src = input, index, source
  local shape = core.shape(base.need_floating(x))
  local d = dimension(shape, dim)
  ids = check_ids(ids, shape[d + 1])
  local there = core.shape(base.tensor(src, "the source"))
  local expected = base.resized(shape, d, core.shape(ids)[1])
  if not base.same_shape(there, expected) then
    misfit("a source of shape %s must have the shape %s", shape_text(there), shape_text(expected))
  end
  base.check_types(x, "the tensor", src, "the source")
  alpha = base.number_or(alpha, 1, "alpha")
  if alpha ~= 1 then src = raw.mul(src, alpha) end
  local sum = append("index_add", {src, ids}, {dims = {d}, shapes = {shape}})
  return base.narrowed(raw.add(x, sum), x)
end)

--- F.embedding(input, weight, padding_idx?, norm_type = 2): rows of the weight. Row `padding_idx` gets no gradient; `norm_type`
--- changes nothing.
method("embedding", function(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
  local ids = input
  local shape = core.shape(base.tensor(weight, "the weight"))
  if #shape ~= 2 then
    misfit("the weight must have two dimensions, rows and size, not the shape %s",
      shape_text(shape))
  end
  local index = base.indices(ids, "the indices", shape[1])
  local y = base.stored_rows(weight, index) or append("embedding", {weight, index})
  if padding_idx == nil then return y end
  local row = base.whole(padding_idx, "padding_idx", -shape[1], shape[1] - 1)
  local is_padding = raw.eq(raw.unsqueeze(index, -1), row % shape[1])
  return raw.where(is_padding, raw.detach(y), y)
end)

--- F.one_hot(input, num_classes = -1): 1 at each index, else 0; whole numbers `[..., classes]`.
method("one_hot", function(input, num_classes)
  if num_classes == nil or num_classes == -1 then
    misfit("say num_classes: the largest index is not a size that a plan knows")
  end
  local ids, n = input, num_classes
  n = base.whole(n, "the number of classes", 1, 2^31 - 1 | 0)
  ids = base.indices(ids, "the indices", n)
  return raw.to(raw.eq(raw.unsqueeze(ids, -1), base.index_row(n)), "int32")
end)

-- --------------------------------------------------------------------------------------- triangles

--- F.tril(input, diagonal = 0): zeros above a diagonal.
--- F.triu(input, diagonal = 0): zeros below a diagonal.
for _, name in ipairs{"tril", "triu"} do
  method(name, function(input, diagonal)
    local x = input
    if #core.shape(x) < 2 then
      misfit("it takes matrices, not the shape %s", shape_text(core.shape(x)))
    end
    diagonal = diagonal == nil and 0 or base.whole(diagonal, "the diagonal", -2^40 | 0, 2^40 | 0)
    return append(name, {x}, {diagonal = diagonal})
  end)
end
