-- elements.lua: some elements of a tensor: operators that give them, and the way back: put_X(whole, part, ...) is
-- `whole` with `part` in the place of those that X takes.
local core, base = ...
local raw, constants, fail, torch = base.raw, base.constants, base.fail, base.torch
local operators, put_back = base.torch_operators, torch.put_back

-- Second names of PyTorch's. A real tensor is its own conjugate.
operators.moveaxis, operators.positive, operators.lift_fresh = operators.movedim, operators.alias, operators.alias
operators.linalg_diagonal = function(a)
  return operators.diagonal{self = a.A or a.self, offset = a.offset, dim1 = a.dim1 or -2, dim2 = a.dim2 or -1}
end
for _, name in ipairs{"mH", "matrix_H", "adjoint"} do operators[name] = operators.mT end
operators.ravel = function(a) return operators.flatten{self = a.self} end
operators._reshape_alias = operators.view
for _, name in ipairs{"split", "split_with_sizes", "chunk"} do operators["unsafe_" .. name] = operators[name] end
for n = 1, 3 do
  operators["atleast_" .. n .. "d"] = function(a)
    local x = a.self
    if x == nil then fail("atleast_%dd of several tensors is not supported", n) end
    local sizes = table.move(core.shape(x), 1, #core.shape(x), 1, {})
    -- [n] becomes [1, n, 1], and [n, m] becomes [n, m, 1].
    if n == 3 and #sizes == 2 then sizes[3] = 1 end
    if n == 3 and #sizes == 1 then sizes = {1, sizes[1], 1} end
    while #sizes < n do table.insert(sizes, 1, 1) end
    return base.view(x, sizes)
  end
end

-- Parts as numpy's array_split cuts them: so many, the first ones with one element more; or at places.
local function parts_of(x, d, sections, places)
  local size, sizes = core.shape(x)[d + 1], {}
  if sections then
    for i = 1, sections do sizes[i] = size // sections + (i <= size % sections and 1 or 0) end
  else
    local last = 0
    for _, at in ipairs(places or fail("tensor_split by a tensor is not supported")) do
      at = math.min(at < 0 and math.max(at + size, 0) or at, size)
      sizes[#sizes + 1], last = at - last, at
    end
    sizes[#sizes + 1] = size - last
  end
  for _, n in ipairs(sizes) do
    if n < 1 then fail("a part of no elements is not supported") end
  end
  return raw.split(x, sizes, d)
end
local function splits(dim)
  return function(a)
    local shape = core.shape(a.self)
    return parts_of(a.self, base.dimension(shape, dim(a, shape)), a.sections, a.indices)
  end
end
operators.tensor_split = splits(function(a) return a.dim or 0 end)
operators.hsplit = splits(function(_, shape) return #shape == 1 and 0 or 1 end)
operators.vsplit, operators.dsplit = splits(function() return 0 end), splits(function() return 2 end)

-- ----------------------------------------------------------------------------------- every so many-th

-- Elements first, first + step, ... of dimension d, among `count`.
function torch.put_every(whole, part, d, first, count, step)
  if count == 0 then return whole end
  if step == 1 then return put_back(whole, part, d, first, count) end
  local size, n = core.shape(whole)[d + 1], (count + step - 1) // step
  local beyond = math.max(first + n * step - size, 0)
  local there = raw.narrow(whole, d, first, n * step - beyond)
  local rows = beyond > 0 and raw.pad(there, {[d] = {0, beyond}}) or there
  rows = raw.unflatten(rows, d, {n, step})
  rows = raw.cat({raw.unsqueeze(part, d + 1), raw.narrow(rows, d + 1, 1, step - 1)}, d + 1)
  rows = raw.flatten(rows, d, d + 1)
  if beyond > 0 then rows = raw.narrow(rows, d, 0, n * step - beyond) end
  return put_back(whole, rows, d, first, n * step - beyond)
end

-- ------------------------------------------------------------------------------------------ diagonals

function torch.put_diagonal(whole, part, a)
  local shape, order, back = core.shape(whole), {}, {}
  local dims = a.A ~= nil and {a.dim1 or -2, a.dim2 or -1} or {a.dim1 or 0, a.dim2 or 1}
  local d1, d2 = base.dimension(shape, dims[1]), base.dimension(shape, dims[2])
  for i = 0, #shape - 1 do
    if i ~= d1 and i ~= d2 then order[#order + 1] = i end
  end
  order[#order + 1], order[#order + 2] = d1, d2
  for i, d in ipairs(order) do back[d + 1] = i - 1 end
  local n, m, offset, last = shape[d1 + 1], shape[d2 + 1], a.offset or 0, #shape - 2
  local first = math.max(-offset, 0)
  local column = raw.unsqueeze(raw.pad(part, {[last] = {first, n - first - core.shape(part)[last + 1]}}), -1)
  local away = raw.sub(base.view(raw.arange(m), {1, m}), base.view(raw.arange(n), {n, 1}))
  return raw.permute(raw.where(raw.eq(away, offset), column, raw.permute(whole, order)), back)
end
operators.diagonal_scatter = function(a) return torch.put_diagonal(a.self, a.src, a) end

-- -------------------------------------------------------------------------------------------- windows

-- Of windows that overlap all elements are one number.
function torch.put_windows(whole, part, a)
  local shape, size, step = core.shape(whole), a.size, a.step
  local d = base.dimension(shape, a.dimension)
  local n = core.shape(part)[d + 1]
  if step < size and n > 1 then
    local one, sizes = raw.select(raw.narrow(part, d, 0, 1), -1, 0), table.move(shape, 1, #shape, 1, {})
    sizes[d + 1] = (n - 1) * step + size
    return put_back(whole, raw.expand(one, sizes), d, 0, sizes[d + 1])
  end
  local pieces = {}
  for i = 0, n - 1 do
    pieces[#pieces + 1] = operators.movedim{self = raw.select(part, d, i), source = -1, destination = d}
    local ends, rest = i * step + size, i < n - 1 and step - size or shape[d + 1] - (n - 1) * step - size
    if rest > 0 then pieces[#pieces + 1] = raw.narrow(whole, d, ends, rest) end
  end
  return #pieces == 1 and pieces[1] or raw.cat(pieces, d)
end

-- ------------------------------------------------------------------------------------ by their strides

-- Dimensions, the outermost in memory first.
local function by_stride(sizes, strides)
  local order = {}
  for i = 1, #sizes do order[i] = i end
  table.sort(order, function(i, j)
    if strides[i] ~= strides[j] then return strides[i] > strides[j] end
    return sizes[i] > sizes[j] or sizes[i] == sizes[j] and i < j
  end)
  return order
end

-- Whether two elements may be one in memory.
function torch.strides_overlap(sizes, strides)
  local order, reach = by_stride(sizes, strides), 1
  for k = #order, 1, -1 do
    local i = order[k]
    if sizes[i] > 1 then
      if strides[i] < reach then return true end
      reach = reach + (sizes[i] - 1) * strides[i]
    end
  end
  return false
end

-- Where all elements of the tensor are taken in another order: that of the dimensions, from the outermost, and their
-- sizes; else nil.
local function order_of_all(x, a, first)
  local order, sizes, count = by_stride(a.size, a.stride), {}, 1
  for k = #order, 1, -1 do
    local i = order[k]
    if a.size[i] ~= 1 and a.stride[i] ~= count then return nil end
    sizes[k] = a.size[i]
    count = count * a.size[i]
  end
  if first == 0 and count == base.elements(core.shape(x)) then return order, sizes end
end

-- The place of each element that is taken, in the memory of the tensor.
local function places(x, a, first)
  local at, last = nil, first
  for d, size in ipairs(a.size) do
    local sizes = {}
    for i = 1, #a.size do sizes[i] = i == d and size or 1 end
    local term = raw.mul(base.view(raw.arange(size), sizes), a.stride[d])
    at, last = at and raw.add(at, term) or term, last + (size - 1) * a.stride[d]
  end
  if first < 0 or last >= base.elements(core.shape(x)) then fail("as_strided supports only elements of the tensor itself") end
  at = at and raw.add(at, first) or raw.full({1}, first, "int32")
  return base.view(raw.expand(at, #a.size > 0 and a.size or {1}), {base.elements(a.size)})
end

-- The first element, counted from that of the tensor, which must be contiguous.
local function first_of(a)
  local layout = a.layout and a.layout()
  if not layout or not torch.is_contiguous(layout) then
    fail("as_strided supports only contiguous tensors: write .contiguous() before it")
  end
  return a.storage_offset ~= nil and a.storage_offset - layout.offset or 0
end

operators.as_strided = function(a)
  local x, first = a.self, first_of(a)
  local order, sizes = order_of_all(x, a, first)
  if not order then
    return base.view(raw.index_select(raw.flatten(x), 0, places(x, a, first)), a.size)
  end
  local back = {}
  for k, i in ipairs(order) do back[i] = k - 1 end
  local y = base.view(x, sizes)
  return #back == 0 and y or raw.permute(y, back)
end

function torch.put_strided(whole, part, a)
  local first = first_of(a)
  local order = order_of_all(whole, a, first)
  if order then
    for k, i in ipairs(order) do order[k] = i - 1 end
    return base.view(#order == 0 and part or raw.permute(part, order), core.shape(whole))
  end
  local n = base.elements(a.size)
  local new = operators.scatter{self = raw.flatten(whole), dim = 0, index = places(whole, a, first), src = base.view(part, {n})}
  return base.view(new, core.shape(whole))
end

-- ------------------------------------------------------------------------------------------ by indices

-- Whole slices along a dimension, at places that are one vector.
operators.index_copy = function(a)
  local indices = {}
  for i = 1, base.dimension(core.shape(a.self), a.dim) do indices[i] = false end
  indices[#indices + 1] = a.index
  return operators.index_put{self = a.self, indices = indices, values = a.source}
end
operators.index_fill = function(a)
  local shape, sizes = core.shape(a.self), {}
  local d = base.dimension(shape, a.dim)
  for i = 1, #shape do sizes[i] = i == d + 1 and shape[i] or 1 end
  local n = base.elements(core.shape(a.index))
  local at = raw.eq(base.view(raw.to(a.index, "int32"), {n, 1}), base.view(raw.arange(shape[d + 1]), {1, shape[d + 1]}))
  local is_named = raw.gt(raw.amax(raw.to(at, "int32"), 0), 0)
  return operators.where{condition = base.view(is_named, sizes), self = operators.fill{self = a.self, value = a.value}, other = a.self}
end
operators.fill_diagonal = function(a)
  local shape = core.shape(a.self)
  if #shape ~= 2 or a.wrap then fail("fill_diagonal supports only matrices, without wrap") end
  local n = math.min(shape[1], shape[2])
  return torch.put_diagonal(a.self, raw.full({n}, a.fill_value, core.type(a.self)), {})
end

-- ------------------------------------------------------------------------------------------ embeddings

-- The rows that the indices name, where they are longer than max_norm, have that length.
operators.embedding_renorm = function(a)
  local n = core.shape(a.self)[1]
  local indices = raw.to(constants.is(a.indices) and constants.tensor(a.indices) or a.indices, "int32")
  local count = base.elements(core.shape(indices))
  local hits = raw.bincount(base.view(indices, {count}), nil, n)
  local length = raw.norm(a.self, a.norm_type or 2, -1)
  local is_long = raw.logical_and(raw.gt(hits, 0), raw.gt(length, a.max_norm))
  local scale = raw.where(is_long, raw.div(a.max_norm, raw.add(length, 1e-7)), 1.0)
  return raw.mul(a.self, raw.unsqueeze(scale, -1))
end
