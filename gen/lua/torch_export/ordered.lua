-- ordered.lua: operators of exported programs, of the kind that few models have, by the order of numbers: medians,
-- quantiles, searches in sorted numbers, extremes and sums up to each element; bags of embeddings; numbers that are put
-- together by their indices.
local core, base = ...
local raw, constants, fail, torch = base.raw, base.constants, base.fail, base.torch
local operators, is_tensor = base.torch_operators, core.is_tensor

local floats, plain_tensor, with_indices = torch.floats, torch.plain_tensor, torch.with_indices

-- --------------------------------------------------------------------------------- up to each element

for _, name in ipairs{"cummax", "cummin"} do
  local of_two = name == "cummax" and raw.maximum or raw.minimum
  operators[name] = with_indices(function(x, a) return raw[name](x, a.dim) end, function(x, a)
    local values, shape = torch.up_to_each(x, a.dim, of_two), core.shape(x)
    local d, across = base.dimension(shape, a.dim), {}
    for i = 1, #shape do across[i] = i == d + 1 and shape[i] or 1 end
    local places = raw.to(raw.expand(base.view(base.index_row(shape[d + 1]), across), shape), "float32")
    return values, raw.to((raw.cummax(raw.where(raw.eq(x, values), places, -1.0), d)), "int64") -- of equal ones the last
  end)
end
operators.logcumsumexp = function(a)
  local x = a.self
  local d = base.dimension(core.shape(x), a.dim)
  local n, by = core.shape(x)[d + 1], 1
  while by < n do
    local y = raw.logaddexp(raw.narrow(x, d, by, n - by), raw.narrow(x, d, 0, n - by))
    x, by = raw.cat({raw.narrow(x, d, 0, by), y}, d), 2 * by
  end
  return x
end
operators.cumulative_trapezoid = function(a)
  local y, shape = a.y, core.shape(a.y)
  local d = base.dimension(shape, a.dim or -1)
  local n = shape[d + 1]
  if n < 2 then fail("cumulative_trapezoid of one number is not supported") end
  local function neighbours(f, v, e) return f(raw.narrow(v, e, 1, n - 1), raw.narrow(v, e, 0, n - 1)) end
  local parts = raw.mul(neighbours(raw.add, y, d), 0.5)
  if a.x == nil then return raw.cumsum(raw.mul(parts, a.dx or 1), d) end
  local steps, across = neighbours(raw.sub, a.x, #core.shape(a.x) == 1 and 0 or d), {}
  for i = 1, #shape do across[i] = i == d + 1 and n - 1 or 1 end
  if #core.shape(a.x) == 1 then steps = base.view(steps, across) end
  return raw.cumsum(raw.mul(parts, steps), d)
end

-- ------------------------------------------------------------------------------------------ in order

-- Of a tensor without a dimension to sort, or of all elements as one, the sharding must not cut it.
local function sorted(x, d)
  if core.type(x) ~= "float32" and core.type(x) ~= "bfloat16" then return torch.sorted_whole(x, d) end
  return raw.sort(torch.sortable(x, d), d)
end

-- The k-th smallest element along a dimension, and its index.
local function kth(x, k, dim, keepdim)
  if #core.shape(x) == 0 then return x, raw.full({}, 0, "int64") end
  local d = base.dimension(core.shape(x), dim or -1)
  local values, indices = sorted(x, d)
  local function taken(v)
    v = raw.narrow(v, d, k - 1, 1)
    return keepdim and v or raw.squeeze(v, d)
  end
  return taken(values), taken(indices)
end
local function kth_of(x, a) return kth(x, a.k, a.dim, a.keepdim) end
operators.kthvalue = with_indices(kth_of, kth_of)
local function median_along(x, a)
  return kth(x, (core.shape(x)[base.dimension(core.shape(x), a.dim) + 1] + 1) // 2, a.dim, a.keepdim)
end
-- Of all elements, the gradient goes to all that are the median, in equal parts.
operators.median = with_indices(function(x, a)
  if a.dim ~= nil then return median_along(x, a) end
  local flat = raw.flatten(x)
  local y = kth(raw.detach(flat), (core.shape(flat)[1] + 1) // 2, 0)
  local hits = raw.to(raw.eq(raw.detach(flat), y), "float32")
  local sum = raw.div(raw.sum(raw.mul(flat, hits)), raw.clamp(raw.sum(hits), 1))
  return raw.add(y, raw.sub(sum, raw.detach(sum)))
end, function(x, a)
  if a.dim ~= nil then return median_along(x, a) end
  local flat = raw.flatten(x)
  return (kth(flat, (core.shape(flat)[1] + 1) // 2, 0))
end)
operators.msort = function(a) return (operators.sort{self = a.self, dim = 0}) end

-- Between the two elements around each place q (n - 1) of the sorted ones.
local ROUNDED = {lower = "floor", higher = "ceil", nearest = "round"}
operators.quantile = function(a)
  local x, q, dim = a.self, plain_tensor(a.q), a.dim
  local single, how = not is_tensor(q) or #core.shape(q) == 0, a.interpolation or "linear"
  if dim == nil then x, dim = raw.flatten(x), 0 end
  local shape = core.shape(x)
  local d = base.dimension(shape, dim)
  q = is_tensor(q) and base.view(q, {base.elements(core.shape(q))}) or raw.full({1}, q, "float32")
  local function last_first(v) return operators.movedim{self = v, source = d, destination = -1} end
  local values = last_first((sorted(x, d)))
  local place = raw.mul(raw.to(q, "float32"), shape[d + 1] - 1)
  local function at(f) return raw.index_select(values, -1, raw.to(raw.clamp(raw[f](place), 0, shape[d + 1] - 1), "int32")) end
  local y
  if ROUNDED[how] then
    y = at(ROUNDED[how])
  elseif how == "linear" or how == "midpoint" then
    local low, part = at("floor"), how == "midpoint" and 0.5 or raw.sub(place, raw.floor(place))
    if how == "midpoint" then part = raw.where(raw.eq(place, raw.floor(place)), 0.0, 0.5) end
    y = raw.add(low, raw.mul(raw.sub(at("ceil"), low), part))
  else
    fail("quantile with the interpolation %s is not supported", tostring(how))
  end
  -- [..., q]: the dimension of q comes first, and the one that was sorted goes, or has size 1.
  y = operators.movedim{self = y, source = -1, destination = 0}
  if a.keepdim then
    if a.dim == nil then
      local sizes = {core.shape(y)[1]}
      for i = 1, #core.shape(a.self) do sizes[i + 1] = 1 end
      y = base.view(y, sizes)
    else
      y = raw.unsqueeze(y, d + 1)
    end
  end
  return single and raw.squeeze(y, 0) or y
end

-- The number of sorted numbers that are below each one, or at most as large.
local function places_among(row, x, right)
  local is_before = right and raw.le or raw.lt
  if not is_tensor(x) then x = raw.full({}, x, core.type(row)) end
  row, x = torch.promoted(row, x)
  if #core.shape(row) == 1 then
    return raw.sum(raw.to(is_before(row, raw.unsqueeze(x, -1)), "int64"), -1)
  end
  return raw.sum(raw.to(is_before(raw.unsqueeze(row, -2), raw.unsqueeze(x, -1)), "int64"), -1)
end
local function is_right(a) return a.right or a.side == "right" end
operators.bucketize = function(a)
  return raw.to(places_among(plain_tensor(a.boundaries), a.self, is_right(a)), a.out_int32 and "int32" or "int64")
end
operators.searchsorted = function(a)
  if a.sorter ~= nil then fail("searchsorted with a sorter is not supported") end
  return raw.to(places_among(plain_tensor(a.sorted_sequence), a.self, is_right(a)), a.out_int32 and "int32" or "int64")
end

-- ----------------------------------------------------------------------------------------- by indices

operators.index_reduce = function(a)
  local sizes, shape = {}, core.shape(a.source)
  local d = base.dimension(core.shape(a.self), a.dim)
  for i = 1, #shape do sizes[i] = i == d + 1 and shape[i] or 1 end
  local index = raw.expand(base.view(plain_tensor(a.index), sizes), shape)
  return operators.scatter_reduce{self = a.self, dim = d, index = index, src = a.source, reduce = a.reduce,
    include_self = a.include_self}
end
operators.take = function(a)
  local index = plain_tensor(a.index)
  local y = raw.index_select(raw.flatten(a.self), 0, raw.flatten(index))
  return base.view(y, core.shape(index))
end
-- The rows and the columns of places in a triangle: each row of it begins at a place of its own.
for name, above in pairs{tril_indices = false, triu_indices = true} do
  operators[name] = function(a)
    local offset, count, starts = a.offset or 0, 0, {}
    for i = 0, a.row - 1 do
      local first = above and math.min(math.max(i + offset, 0), a.col) or 0
      local behind = above and a.col or math.max(math.min(i + offset + 1, a.col), 0)
      if behind > first then starts[#starts + 1] = {row = i, at = count, less = count - first} end
      count = count + behind - first
    end
    if count == 0 or #starts > 256 then fail("%s of %d rows with %d places is not supported", name, #starts, count) end
    local place = base.index_row(count)
    local rows, less = raw.full({count}, starts[1].row, "int32"), raw.full({count}, starts[1].less, "int32")
    for i = 2, #starts do
      local begun = raw.to(raw.ge(place, starts[i].at), "int32")
      rows = raw.add(rows, raw.mul(begun, starts[i].row - starts[i - 1].row))
      less = raw.add(less, raw.mul(begun, starts[i].less - starts[i - 1].less))
    end
    return raw.to(raw.stack({rows, raw.sub(raw.to(place, "int32"), less)}, 0), "int64")
  end
end

-- Bags [offset, next offset) of rows. In a bag of no rows all numbers are 0.
local function bags(a, padding)
  local indices, offsets = plain_tensor(a.indices), plain_tensor(a.offsets)
  local n, count = base.elements(core.shape(indices)), core.shape(offsets)[1]
  if a.include_last_offset then offsets = raw.replicate(offsets) end -- which data parallel may have cut
  local last = a.include_last_offset and raw.narrow(offsets, 0, count - 1, 1)
  if last then
    count = count - 1
    offsets = raw.narrow(offsets, 0, 0, count)
  end
  local width = core.shape(a.weight)[2]
  local begun = raw.ge(base.view(base.index_row(n), {n, 1}), base.view(raw.to(offsets, "int32"), {1, count}))
  local bag = raw.to(raw.sub(raw.sum(raw.to(begun, "int32"), 1), 1), "int32")
  local rows = raw.embedding(indices, a.weight)
  if a.per_sample_weights ~= nil then rows = raw.mul(rows, base.view(a.per_sample_weights, {n, 1})) end
  local counts = raw.full({n}, 1, "float32")
  local left_out = padding and padding >= 0 and raw.eq(indices, padding) or nil
  if left_out then counts = raw.to(raw.logical_not(left_out), "float32") end
  -- As in PyTorch's kernels rows behind the last offset are of the last bag, but for sums and means without a padding index: no sum
  -- has them, and means divide by their number, too.
  if last and a.mode ~= 2 and not left_out then left_out = raw.ge(base.index_row(n), raw.to(last, "int32")) end
  if left_out then
    rows = raw.where(raw.unsqueeze(left_out, -1), a.mode == 2 and -math.huge or 0.0, rows)
  end
  local per_bag = raw.unsqueeze(raw.index_add(raw.full({count}, 0, "float32"), 0, bag, counts), -1)
  if a.mode == 2 then
    local most = raw.scatter_reduce(raw.full({count, width}, -math.huge, "float32"), 0, raw.expand(raw.unsqueeze(bag, 1), {n, width}),
      rows, "amax", false)
    return raw.where(raw.gt(per_bag, 0), most, 0.0)
  end
  local sum = raw.index_add(raw.full({count, width}, 0, "float32"), 0, bag, rows)
  return a.mode == 1 and raw.div(sum, raw.clamp(per_bag, 1)) or sum
end

-- Of bags of equal size the rows are summed along a dimension.
operators._embedding_bag = function(a)
  local padding, n = a.padding_idx, base.elements(core.shape(plain_tensor(a.indices)))
  local size = constants.is(a.offsets) and not a.include_last_offset and constants.counted_by(a.offsets)
  if size and a.offsets.shape[1] == 1 then size = n end
  if not size or size * a.offsets.shape[1] ~= n or (padding or -1) >= 0 then return bags(a, padding) end
  local rows = raw.embedding(base.view(plain_tensor(a.indices), {a.offsets.shape[1], size}), a.weight)
  if a.per_sample_weights ~= nil then
    rows = raw.mul(rows, base.view(a.per_sample_weights, {a.offsets.shape[1], size, 1}))
  end
  if a.mode == 2 then return raw.amax(rows, 1) end
  return a.mode == 1 and raw.mean(rows, 1) or raw.sum(rows, 1)
end
operators.embedding_bag = operators._embedding_bag
operators._embedding_bag_forward_only = operators._embedding_bag
