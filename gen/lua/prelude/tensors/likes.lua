-- likes.lua: tensors made after others, rows of numbers, parts of one tensor; types by name; vectors and matrices
-- multiplied; places exchanged. With the names and arguments of torch.
local core, base = ...
local raw, method, define = base.raw, base.method, base.define
local misfit, dimension, view = base.misfit, base.dimension, base.view

-- ------------------------------------------------------------------------------- tensors like another

--- # Arithmetic
--- F.zeros_like(input, dtype?): zeros of the tensor's sizes and type.
--- F.ones_like(input, dtype?): likewise, ones.
for name, value in pairs{zeros_like = 0, ones_like = 1} do
  method(name, function(input, dtype, layout, device, pin_memory, requires_grad, memory_format)
    return raw.full(core.shape(input), value, dtype == nil and core.type(input) or dtype)
  end)
end
--- F.full_like(input, fill_value, dtype?): likewise, one number.
method("full_like", function(input, fill_value, dtype, layout, device, pin_memory, requires_grad, memory_format)
  return raw.full(core.shape(input), fill_value, dtype == nil and core.type(input) or dtype)
end)

--- F.linspace(start, end, steps, dtype?): so many numbers, equally far apart, from `start` to `end`, both included.
define("linspace", function(start, end_, steps, dtype, layout, device, pin_memory, requires_grad)
  local first, last = start, end_
  for _, v in ipairs{first or false, last or false} do
    if type(v) ~= "number" or v - v ~= 0 then misfit("it goes from one finite number to another, not %s", base.a(v or nil)) end
  end
  local n = base.whole(steps, "steps", 1, 2^31 - 1 | 0)
  local i = raw.to(base.index_row(n), "float32")
  if n == 1 then return base.typed(raw.add(i, first), dtype) end
  local step = (last - first) / (n - 1) -- each half from its own end, as in PyTorch
  local up, down = raw.add(raw.mul(i, step), first), raw.sub(last, raw.mul(raw.sub(n - 1, i), step))
  return base.typed(raw.where(raw.lt(i, n // 2), up, down), dtype)
end)

--- F.meshgrid(...): of vectors, or a list of them, as many tensors, in which each vector goes along a dimension of its own;
--- `F.meshgrid({x, y}, {indexing = "xy"})` exchanges the first two. The default is `"ij"`.
local function meshgrid(tensors, indexing)
  local list, n = tensors, base.list(tensors, "what it is given")
  if n == 0 then misfit("it takes vectors") end
  if indexing ~= nil and indexing ~= "ij" and indexing ~= "xy" then
    misfit('indexing is "ij" or "xy", not %s', base.a(indexing))
  end
  local sizes, at, grids = {}, {}, {}
  for i = 1, n do
    local shape = core.shape(base.tensor(rawget(list, i), "each vector"))
    if #shape > 1 then misfit("it takes vectors, not the shape %s", base.shape_text(shape)) end
    sizes[i], at[i] = shape[1] or 1, i
  end
  if indexing == "xy" and n > 1 then at[1], at[2], sizes[1], sizes[2] = 2, 1, sizes[2], sizes[1] end
  for i = 1, n do
    local shape = {}
    for d = 1, n do shape[d] = d == at[i] and sizes[d] or 1 end
    grids[i] = raw.expand(view(rawget(list, i), shape), sizes)
  end
  return table.unpack(grids)
end
define("meshgrid", function(...)
  local given, options = {...}, {}
  local last = given[#given]
  if #given > 0 and base.kind(last) == "table" and rawlen(last) == 0 then
    options = base.options_of(table.remove(given), {"tensors", "indexing"})
    if #given == 0 then given = options.tensors or given end
  end
  if #given == 1 and base.kind(given[1]) == "table" then given = given[1] end
  return meshgrid(given, options.indexing)
end, false)
raw.meshgrid = meshgrid

-- ---------------------------------------------------------------------------------- parts of a tensor

--- # Shapes
--- F.unbind(input, dim = 0): all indices of a dimension, as several results.
method("unbind", function(input, dim)
  local shape, parts = core.shape(input), {}
  local d = dimension(shape, dim == nil and 0 or dim)
  if shape[d + 1] > 64 then misfit("%d results are too many", shape[d + 1]) end
  for i = 1, shape[d + 1] do parts[i] = raw.select(input, d, i - 1) end
  return table.unpack(parts)
end)

--- F.diagonal(input, offset = 0, dim1 = 0, dim2 = 1): the elements whose indices along two dimensions differ by `offset`;
--- they are the last dimension.
method("diagonal", function(input, offset, dim1, dim2)
  local shape, order = core.shape(input), {}
  local d1, d2 = dimension(shape, dim1 == nil and 0 or dim1), dimension(shape, dim2 == nil and 1 or dim2)
  if d1 == d2 then misfit("dim1 and dim2 are two dimensions") end
  offset = base.whole(offset == nil and 0 or offset, "offset")
  for i = 0, #shape - 1 do
    if i ~= d1 and i ~= d2 then order[#order + 1] = i end
  end
  order[#order + 1], order[#order + 2] = d1, d2
  local n, m = shape[d1 + 1], shape[d2 + 1]
  local count = offset >= 0 and math.min(n, m - offset) or math.min(n + offset, m)
  if count < 1 then misfit("a matrix [%d, %d] has no diagonal %d", n, m, offset) end
  local first = offset >= 0 and offset or -offset * m
  local x = raw.flatten(raw.permute(input, order), #shape - 2, #shape - 1)
  return raw.slice(x, #shape - 2, first, first + (count - 1) * (m + 1) + 1, m + 1)
end)

--- F.contiguous(input): the tensor: tpgen chooses the order in memory.
method("contiguous", function(input, memory_format) return input end)
--- F.clone(input): the tensor: tensors never change.
method("clone", function(input, memory_format) return input end)
--- F.view_as(input, other): as the other's sizes.
method("view_as", function(input, other) return raw.view(input, core.shape(base.tensor(other, "the other"))) end)
--- F.expand_as(input, other): `F.expand` to the other's sizes.
method("expand_as", function(input, other) return raw.expand(input, core.shape(base.tensor(other, "the other"))) end)

-- ------------------------------------------------------------------------------------- types by name

--- # Arithmetic
--- F.float(input): `F.to` float32.
--- F.bfloat16(input): `F.to` bfloat16.
--- F.int(input): `F.to` int32.
--- F.long(input): `F.to` int64.
--- F.bool(input): `F.to` bool.
for name, type_name in pairs{float = "float32", bfloat16 = "bfloat16", int = "int32", long = "int64", bool = "bool"} do
  method(name, function(input, memory_format) return raw.to(input, type_name) end)
end
--- F.half(input): an error: there is no float16; bfloat16 has 16 bits, too.
method("half", function(input, memory_format)
  misfit("there is no float16 here: x:bfloat16() has 16 bits and the range of float32")
end)

-- ------------------------------------------------------------------------------ products of matrices

-- a times b, which have so many dimensions.
local function product_of(m, n, a, b)
  local s, t = core.shape(a), core.shape(base.tensor(b, "the second tensor"))
  if #s ~= m or #t ~= n then
    misfit("it takes tensors of %d and %d dimensions, not the shapes %s and %s", m, n, base.shape_text(s), base.shape_text(t))
  end
  return raw.matmul(a, b), s, t
end
--- # Sums and products
--- F.mm(input, mat2): the product of two matrices.
method("mm", function(input, mat2, out_dtype, out) return (product_of(2, 2, input, mat2)) end)
--- F.bmm(input, mat2): of matrices `[n, a, b]` and `[n, b, c]`.
method("bmm", function(input, mat2, out_dtype, out)
  local s, t = core.shape(input), core.shape(base.tensor(mat2, "the second tensor"))
  if #s == 3 and #t == 3 and s[1] ~= t[1] then
    misfit("%d and %d matrices are not equally many; matmul broadcasts", s[1], t[1])
  end
  return (product_of(3, 3, input, mat2))
end)
--- F.mv(input, vec): a matrix times a vector.
method("mv", function(input, vec, out) return (product_of(2, 1, input, vec)) end)
--- F.dot(input, tensor): of two vectors.
method("dot", function(input, tensor, out) return (product_of(1, 1, input, tensor)) end)
--- F.outer(input, vec2): each element of a vector times each of another.
method("outer", function(input, vec2, out)
  local s, t = core.shape(input), core.shape(base.tensor(vec2, "the second vector"))
  if #s ~= 1 or #t ~= 1 then misfit("it takes vectors, not the shapes %s and %s", base.shape_text(s), base.shape_text(t)) end
  return raw.mul(raw.unsqueeze(input, 1), raw.unsqueeze(vec2, 0))
end)
