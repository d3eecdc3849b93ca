-- indices.lua: functions that choose elements by their indices, and those of images.
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

-- x:sort(dim, descending): the values, and their indices.
method("sort", function(x, dim, descending)
  local d = sorted_dim(x, dim)
  local index = order(x, d, descending)
  return gathered(x, d, index), index
end)

method("argsort", function(x, dim, descending) return order(x, sorted_dim(x, dim), descending) end)

-- x:topk(k, dim, largest): the k largest values in order, and their indices.
method("topk", function(x, k, dim, largest)
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

-- Checks an index that has x's dimensions and elsewhere than at d is no larger.
local function check_index(x, d, index)
  local a, b = core.shape(x), core.shape(index)
  local fits = #a == #b
  for i = 1, #a do fits = fits and (i == d + 1 or b[i] <= a[i]) end
  if not fits then
    misfit("an index of shape %s does not fit the shape %s along dimension %d", shape_text(b),
      shape_text(a), d)
  end
end

-- The corner of x that has the sizes of `shape`, but along d.
local function corner(x, d, shape)
  for i, size in ipairs(shape) do
    if i ~= d + 1 then x = base.narrow(x, i - 1, 0, size) end
  end
  return x
end

-- x:gather(dim, index)
method("gather", function(x, dim, index)
  local d = dimension(core.shape(x), dim)
  index = base.indices(index, "the index", core.shape(x)[d + 1])
  check_index(x, d, index)
  return gathered(corner(x, d, core.shape(index)), d, index)
end)

-- What is put in place of x's corner: a part of the source of the index's shape, of x's type.
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

-- x with f's result in the corner, which has the sizes of `shape` but along d; from dimension i on.
local function in_corner(x, d, shape, i, f)
  local own = core.shape(x)
  while i <= #shape and (i == d + 1 or own[i] == shape[i]) do i = i + 1 end
  if i > #shape then return f(x) end
  local rest = base.narrow(x, i - 1, shape[i], own[i] - shape[i])
  local part = in_corner(base.narrow(x, i - 1, 0, shape[i]), d, shape, i + 1, f)
  return base.joined({part, rest}, i - 1)
end

-- x:scatter(dim, index, source): the source's elements where the index says, a number too.
method("scatter", function(x, dim, index, src)
  local d = dimension(core.shape(base.need_floating(x)), dim)
  index = base.indices(index, "the index", core.shape(x)[d + 1])
  check_index(x, d, index)
  src = source(x, index, src)
  return in_corner(x, d, core.shape(index), 1, function(part)
    return base.narrowed(append("scatter", {part, index, src}, {dims = {d}}), x)
  end)
end)

-- x:scatter_add(dim, index, source)
method("scatter_add", function(x, dim, index, src)
  local d = dimension(core.shape(base.need_floating(x)), dim)
  index = base.indices(index, "the index", core.shape(x)[d + 1])
  check_index(x, d, index)
  src = source(x, index, src)
  return in_corner(x, d, core.shape(index), 1, function(part)
    local sum = append("scatter_add", {src, index}, {dims = {d}, shapes = {core.shape(part)}})
    return base.narrowed(raw.add(part, sum), x)
  end)
end)

local function check_ids(ids, below)
  ids = base.indices(ids, "the indices", below)
  if #core.shape(ids) ~= 1 then
    misfit("the indices must have one dimension, not the shape %s", shape_text(core.shape(ids)))
  end
  return ids
end

-- x:index_select(dim, indices)
method("index_select", function(x, dim, ids)
  local d = dimension(core.shape(x), dim)
  return append("index_select", {x, check_ids(ids, core.shape(x)[d + 1])}, {dims = {d}})
end)

-- x:index_add(dim, indices, source)
method("index_add", function(x, dim, ids, src)
  local shape = core.shape(base.need_floating(x))
  local d = dimension(shape, dim)
  ids = check_ids(ids, shape[d + 1])
  local there = core.shape(base.tensor(src, "the source"))
  local wanted = base.resized(shape, d, core.shape(ids)[1])
  if not base.same_shape(there, wanted) then
    misfit("a source of shape %s must have the shape %s", shape_text(there), shape_text(wanted))
  end
  base.check_types(x, "the tensor", src, "the source")
  local sum = append("index_add", {src, ids}, {dims = {d}, shapes = {shape}})
  return base.narrowed(raw.add(x, sum), x)
end)

-- embedding(indices, weight): the weight's rows [..., size].
method("embedding", function(ids, weight)
  local shape = core.shape(base.tensor(weight, "the weight"))
  if #shape ~= 2 then
    misfit("the weight must have two dimensions, rows and size, not the shape %s",
      shape_text(shape))
  end
  return append("embedding", {weight, base.indices(ids, "the indices", shape[1])})
end)

-- one_hot(indices, classes): [..., classes], whole numbers.
method("one_hot", function(ids, n)
  n = base.whole(n, "the number of classes", 1, 2^31 - 1 | 0)
  ids = base.indices(ids, "the indices", n)
  return raw.to(raw.eq(raw.unsqueeze(ids, -1), base.index_row(n)), "int32")
end)

-- --------------------------------------------------------------------------------------- triangles

for _, name in ipairs{"tril", "triu"} do
  method(name, function(x, diagonal)
    if #core.shape(x) < 2 then
      misfit("it takes matrices, not the shape %s", shape_text(core.shape(x)))
    end
    diagonal = diagonal == nil and 0 or base.whole(diagonal, "the diagonal", -2^40 | 0, 2^40 | 0)
    return append(name, {x}, {diagonal = diagonal})
  end)
end

-- ------------------------------------------------------------------------------------------ images

local MOST = 1 << 20

-- A number for both dimensions, or {y, x}.
local function pair(v, what, least, otherwise)
  if v == nil then v = otherwise end
  if base.kind(v) ~= "table" then v = {v, v} end
  if base.list(v, what) ~= 2 then misfit("%s is a number, or {y, x}", what) end
  return base.whole(rawget(v, 1), what, least, MOST), base.whole(rawget(v, 2), what, least, MOST)
end

-- How often a window fits.
local function windows(x, size, window, stride, pad, dilation)
  local n = (size + 2 * pad - dilation * (window - 1) - 1) // stride + 1
  if n < 1 then
    misfit("a window of %d does not fit the shape %s", dilation * (window - 1) + 1,
      shape_text(core.shape(x)))
  end
  return n
end

local function check_conv(x, weight, groups)
  base.need_floating(base.tensor(weight, "the weight"))
  local s, t = core.shape(base.need_floating(x)), core.shape(weight)
  if #s ~= 4 or #t ~= 4 then
    misfit("it takes images [n, channels, y, x] and weights [out, in, y, x], not the shapes %s and "
      .. "%s", shape_text(s), shape_text(t))
  end
  if s[2] ~= t[2] * groups or t[1] % groups ~= 0 then
    misfit("images %s do not fit weights %s in %d groups", shape_text(s), shape_text(t), groups)
  end
  return s, t
end

-- conv2d(x, weight, bias, {stride =, padding =, dilation =, groups =})
method("conv2d", function(x, weight, bias, options)
  options = base.options_of(options, {"stride", "padding", "dilation", "groups"})
  local groups = options.groups == nil and 1 or base.whole(options.groups, "groups", 1, MOST)
  local s, t = check_conv(x, weight, groups)
  local stride_y, stride_x = pair(options.stride, "the stride", 1, 1)
  local pad_y, pad_x = pair(options.padding, "the padding", 0, 0)
  local dilation_y, dilation_x = pair(options.dilation, "the dilation", 1, 1)
  local high = windows(x, s[3], t[3], stride_y, pad_y, dilation_y)
  local wide = windows(x, s[4], t[4], stride_x, pad_x, dilation_x)
  local y = append("conv2d", {x, weight}, {stride_y = stride_y, stride_x = stride_x, pad_y = pad_y,
    pad_x = pad_x, dilation_y = dilation_y, dilation_x = dilation_x,
    shapes = {{s[1], t[1], high, wide}}})
  if bias == nil then return base.narrowed(y, x) end
  local size = core.shape(base.tensor(bias, "the bias"))
  if #size ~= 1 or size[1] ~= t[1] then
    misfit("a bias of shape %s does not fit weights %s", shape_text(size), shape_text(t))
  end
  return base.narrowed(raw.add(y, view(bias, {t[1], 1, 1})), x)
end)

-- max_pool2d(x, kernel, {stride =, padding =}): the stride is the kernel's size unless it is given.
method("max_pool2d", function(x, kernel, options)
  options = base.options_of(options, {"stride", "padding"})
  local s = core.shape(base.need_floating(x))
  if #s < 3 then misfit("it takes images [..., y, x], not the shape %s", shape_text(s)) end
  local kernel_y, kernel_x = pair(kernel, "the kernel", 1)
  local stride_y, stride_x = pair(options.stride, "the stride", 1, {kernel_y, kernel_x})
  local pad_y, pad_x = pair(options.padding, "the padding", 0, 0)
  if 2 * pad_y > kernel_y or 2 * pad_x > kernel_x then
    misfit("the padding is at most half of the kernel")
  end
  local shape = table.move(s, 1, #s, 1, {})
  shape[#s - 1] = windows(x, s[#s - 1], kernel_y, stride_y, pad_y, 1)
  shape[#s] = windows(x, s[#s], kernel_x, stride_x, pad_x, 1)
  local y = append("max_pool2d", {x}, {kernel_y = kernel_y, kernel_x = kernel_x,
    stride_y = stride_y, stride_x = stride_x, pad_y = pad_y, pad_x = pad_x, shapes = {shape}})
  return base.narrowed(y, x)
end)
