-- views.lua: functions that move elements: other shapes, other orders, parts, and joins.
local core, base = ...
local append, raw, define, method = core.append, base.raw, base.define, base.method
local misfit, shape_text, dimension = base.misfit, base.shape_text, base.dimension

-- ----------------------------------------------------------------------------------------- views

local function ones(n)
  local list = {}
  for i = 1, n do list[i] = 1 end
  return list
end

-- By join whose parts are known: {list = the parts, dim = the dimension along which they are joined}. A view of
-- the join is taken of these parts, and a join that nothing reads is not computed.
local joins = setmetatable({}, {__mode = "k"})

local function join_of(list, d)
  local y = base.joined(list, d)
  joins[y] = {list = list, dim = d}
  return y
end
base.join_of = join_of

-- The parts along dimension d of a join, or of a parameter that is kept in parts; else nil.
function base.parts_along(x, d)
  local join = joins[x]
  if join then return join.dim == d and join.list or nil end
  local list, dim = core.parts(x)
  return list and dim == d and list or nil
end

-- The dimension of the new shape that is divided as dimension d of the old one is, and how many
-- elements of that belong to one of it; nil where there is none.
local function dimension_in_view(old, d, new)
  local before, seen, at = 1, 1, 1
  for i = 1, d do before = before * old[i] end
  while at <= #new and (seen < before or new[at] == 1) do seen, at = seen * new[at], at + 1 end
  if seen ~= before or at > #new then return nil end
  local whole, inner = new[at], 1
  for i = at + 1, #new do
    if whole >= old[d + 1] then break end
    whole, inner = whole * new[i], inner * new[i]
  end
  if whole == old[d + 1] then return at - 1, inner end
end
base.dimension_in_view = dimension_in_view

-- The view of a join as a join of views; nil where parts do not end where elements of the new
-- dimension do.
local function view_of_join(x, join, shape, view)
  local d, inner = dimension_in_view(core.shape(x), join.dim, shape)
  local list = {}
  for i, part in ipairs(d and join.list or {}) do
    local size = core.shape(part)[join.dim + 1]
    if size % inner ~= 0 then return nil end
    list[i] = view(part, base.resized(shape, d, size // inner))
  end
  return d and join_of(list, d)
end

-- The tensor in another shape with as many elements.
local function view(x, shape)
  if base.same_shape(core.shape(x), shape) then return x end
  local y = joins[x] and view_of_join(x, joins[x], shape, base.view)
  return y or append("view", {x}, {shapes = {shape}})
end
base.view = view

-- Sizes; one may be -1: it is computed from `count` elements.
local function filled_sizes(count, of, ...)
  local sizes = base.integers("size", ...)
  if #sizes > 8 then misfit("a tensor has at most 8 dimensions, not %d", #sizes) end
  local function no_fit()
    misfit("sizes %s do not fit %s of %d elements", shape_text(sizes), of, count)
  end
  local open, known = nil, 1
  for i, size in ipairs(sizes) do
    if size == -1 then
      if open then misfit("only one size can be -1") end
      open = i
    else
      if size < 1 or size > count // known then no_fit() end
      known = known * size
    end
  end
  if count % known ~= 0 or not open and known ~= count then no_fit() end
  if open then sizes[open] = count // known end
  return sizes
end

local function reshape(input, ...)
  local x = input
  local shape = core.shape(x)
  return view(x, filled_sizes(base.elements(shape), "the shape " .. shape_text(shape), ...))
end
--- # Shapes
--- F.view(input, ...): the same elements with other sizes; one may be -1.
method("view", function(input, ...)
  if type((...)) == "string" then misfit("the bytes of one type cannot be viewed as another type: x:to(%s) converts", (...)) end
  return reshape(input, ...)
end, "size")
--- F.reshape(input, ...): as `F.view`.
method("reshape", reshape, "shape")

-- The shape with `sizes` in the place of dimensions first .. last.
local function replaced(shape, first, last, sizes)
  local new = {}
  for d = 0, first - 1 do new[#new + 1] = shape[d + 1] end
  for _, size in ipairs(sizes) do new[#new + 1] = size end
  for d = last + 1, #shape - 1 do new[#new + 1] = shape[d + 1] end
  if #new > 8 then misfit("a tensor has at most 8 dimensions, not %d", #new) end
  return new
end

--- F.flatten(input, start_dim = 0, end_dim = -1): those dimensions as one.
method("flatten", function(input, start_dim, end_dim)
  local x, first, last = input, start_dim, end_dim
  local shape = core.shape(x)
  if #shape == 0 then return view(x, {1}) end
  first = dimension(shape, first == nil and 0 or first)
  last = dimension(shape, last == nil and -1 or last)
  if first > last then misfit("dimension %d comes after dimension %d", first, last) end
  local size = 1
  for d = first, last do size = size * shape[d + 1] end
  return view(x, replaced(shape, first, last, {size}))
end)

--- F.unflatten(input, dim, ...): one dimension as several; a size may be -1.
method("unflatten", function(input, dim, ...)
  local shape = core.shape(input)
  local d = dimension(shape, dim)
  local of = string.format("dimension %d of the shape %s,", d, shape_text(shape))
  return view(input, replaced(shape, d, d, filled_sizes(shape[d + 1], of, ...)))
end, "sizes")

--- F.squeeze(input, dim?): without dimensions of size 1, all or these.
method("squeeze", function(input, dim)
  local x, shape, new = input, core.shape(input), {}
  local dims = {}
  for _, d in ipairs(base.dimensions(shape, dim)) do dims[d] = true end
  for d = 0, #shape - 1 do
    if not (dims[d] and shape[d + 1] == 1) then new[#new + 1] = shape[d + 1] end
  end
  return view(x, new)
end)

local function unsqueeze(input, dim)
  local shape = core.shape(input)
  local d = dimension(shape, dim, 1)
  return view(input, replaced(shape, d, d - 1, {1}))
end
--- F.unsqueeze(input, dim): with a dimension of size 1 more.
method("unsqueeze", unsqueeze)

-- ----------------------------------------------------------------------------------- permutations

local LETTERS = "abcdefgh"

-- order[i] is the dimension that becomes dimension i, from 0.
local function permuted(x, order)
  local to, same = {}, true
  for i, d in ipairs(order) do
    to[i] = string.sub(LETTERS, d + 1, d + 1)
    same = same and d == i - 1
  end
  if same then return x end
  if joins[x] then
    local list, place = {}, nil
    for i, part in ipairs(joins[x].list) do list[i] = base.permuted(part, order) end
    for i, d in ipairs(order) do place = d == joins[x].dim and i - 1 or place end
    return join_of(list, place)
  end
  return append("permute", {x},
    {equation = string.sub(LETTERS, 1, #order) .. "->" .. table.concat(to)})
end

base.permuted = permuted

--- F.permute(input, ...): the dimensions in another order.
method("permute", function(input, ...)
  local x = input
  local shape, order, seen = core.shape(x), base.integers("dimension", ...), {}
  if #order ~= #shape then
    misfit("a tensor of shape %s has %d dimensions, and %d are named", shape_text(shape), #shape,
      #order)
  end
  for i, dim in ipairs(order) do
    local d = dimension(shape, dim)
    if seen[d] then misfit("dimension %d is named twice", d) end
    seen[d], order[i] = true, d
  end
  return permuted(x, order)
end, "dims")

local function transpose(input, dim0, dim1)
  local shape, order = core.shape(input), {}
  local a, b = dimension(shape, dim0), dimension(shape, dim1)
  for d = 0, #shape - 1 do order[d + 1] = d == a and b or d == b and a or d end
  return permuted(input, order)
end
--- F.transpose(input, dim0, dim1): two dimensions exchanged.
method("transpose", transpose)

--- F.t(input): the transposed matrix.
method("t", function(input)
  local x = input
  local shape = core.shape(x)
  if #shape > 2 then
    misfit("a matrix is transposed, not a tensor of shape %s: use transpose", shape_text(shape))
  end
  return #shape == 2 and transpose(x, 0, 1) or x
end)

-- -------------------------------------------------------------------------------------- broadcast

--- F.expand(input, ...): sizes of 1 become others, new dimensions come first; -1 keeps a size.
method("expand", function(input, ...)
  local x = input
  local shape, sizes = core.shape(x), base.integers("size", ...)
  local new = #sizes - #shape
  local function no_fit()
    misfit("the shape %s does not broadcast to %s", shape_text(shape), shape_text(sizes))
  end
  if new < 0 or #sizes > 8 then no_fit() end
  local given, to, broadcast = {}, {}, {}
  for i, size in ipairs(sizes) do
    given[i] = i > new and shape[i - new] or 1
    to[i] = size == -1 and i > new and given[i] or size
    if to[i] < 1 or to[i] ~= given[i] and given[i] ~= 1 then no_fit() end
    if to[i] ~= given[i] then broadcast[#broadcast + 1] = i - 1 end
  end
  if #broadcast == 0 then return view(x, to) end
  return append("expand", {view(x, given)},
    {scalar = 1, dims = broadcast, keep = true, shapes = {to}})
end, "size")

-- ------------------------------------------------------------------------------------------- parts

-- The shape with another size at dimension d.
local function resized(shape, d, size)
  local new = table.move(shape, 1, #shape, 1, {})
  new[d + 1] = size
  return new
end
base.resized = resized

-- `size` elements from `start` on, along dimension d.
local function narrow(x, d, start, size)
  local shape = core.shape(x)
  if start == 0 and size == shape[d + 1] then return x end
  local first, whole = 0, {}
  for _, part in ipairs(base.parts_along(x, d) or {}) do
    local n = core.shape(part)[d + 1]
    if start >= first and start + size <= first + n then
      return base.narrow(part, d, start - first, size)
    end
    if start <= first and start + size >= first + n then whole[#whole + 1] = part end
    first = first + n
  end
  local sum = 0
  for _, part in ipairs(whole) do sum = sum + core.shape(part)[d + 1] end
  if #whole > 0 and sum == size then return join_of(whole, d) end
  return append("narrow", {x}, {dims = {d}, start = start, shapes = {resized(shape, d, size)}})
end
base.narrow = narrow

--- F.narrow(input, dim, start, length): a part of a dimension.
method("narrow", function(input, dim, start, length)
  local x, size = input, length
  local shape = core.shape(x)
  local d = dimension(shape, dim)
  local n = shape[d + 1]
  start = base.whole(start, "the start", -n, n)
  if start < 0 then start = start + n end
  size = base.whole(size, "the length", 1)
  if size > n - start then
    misfit("%d elements from %d on are more than dimension %d of the shape %s has", size, start, d,
      shape_text(shape))
  end
  return narrow(x, d, start, size)
end)

--- F.slice(input, dim, from?, to?, step = 1): `x[from:to:step]` along a dimension.
method("slice", function(input, dim, from, to, step)
  local x = input
  local shape = core.shape(x)
  local d = dimension(shape, dim)
  local n = shape[d + 1]
  local function place(v, what, otherwise)
    if v == nil then return otherwise end
    v = base.whole(v, what)
    return math.max(0, math.min(n, v < 0 and v + n or v))
  end
  local first, last = place(from, "the start", 0), place(to, "the end", n)
  step = step == nil and 1 or base.whole(step, "the step", 1)
  if first >= last then
    misfit("nothing is from %d to %d along dimension %d of the shape %s", first, last, d,
      shape_text(shape))
  end
  local part = narrow(x, d, first, last - first)
  if step == 1 then return part end
  return append("every", {part},
    {dims = {d}, step = step, shapes = {resized(shape, d, (last - first + step - 1) // step)}})
end)

--- F.select(input, dim, index): one index of a dimension, which disappears.
method("select", function(input, dim, index)
  local x = input
  local shape = core.shape(x)
  local d = dimension(shape, dim)
  local n = shape[d + 1]
  local i = base.whole(index, "the index")
  if i < -n or i >= n then
    misfit("dimension %d of the shape %s has no index %d", d, shape_text(shape), i)
  end
  return view(narrow(x, d, i < 0 and i + n or i, 1), replaced(shape, d, d, {}))
end)

local MOST_PARTS = 64

-- The parts of these sizes, one after the other.
local function parts(x, d, sizes)
  if #sizes > MOST_PARTS then misfit("%d parts; at most %d", #sizes, MOST_PARTS) end
  local list, start = {}, 0
  for i, size in ipairs(sizes) do
    list[i] = narrow(x, d, start, size)
    start = start + size
  end
  return table.unpack(list)
end

-- Parts of `size`; the last one is smaller if `size` does not divide.
local function equal_parts(x, d, size)
  local n = core.shape(x)[d + 1]
  if (n - 1) // size >= MOST_PARTS then
    misfit("%d parts; at most %d", (n - 1) // size + 1, MOST_PARTS)
  end
  local sizes = {}
  for start = 0, n - 1, size do sizes[#sizes + 1] = math.min(size, n - start) end
  return parts(x, d, sizes)
end

-- x:split(size or {sizes}, dim): the parts, as separate results.
local function split(x, sizes, dim)
  local shape = core.shape(x)
  local d = dimension(shape, dim == nil and 0 or dim)
  if base.kind(sizes) ~= "table" then
    return equal_parts(x, d, base.whole(sizes, "the size of a part", 1))
  end
  local list, sum = base.integers("size", sizes), 0
  for _, size in ipairs(list) do sum = sum + base.whole(size, "the size of a part", 1, 1 << 40) end
  if sum ~= shape[d + 1] then
    misfit("sizes %s make %d, and dimension %d of the shape %s has %d", shape_text(list), sum, d,
      shape_text(shape), shape[d + 1])
  end
  return parts(x, d, list)
end
--- F.split(tensor, split_size_or_sections, dim = 0): parts of a size, or of listed sizes, as several results.
method("split", function(tensor, split_size_or_sections, dim)
  return split(tensor, split_size_or_sections, dim)
end)
--- x:split(input, split_size, dim = 0): the same, as a method.
base.as_method("split", function(input, split_size, dim) return split(input, split_size, dim) end)

--- F.chunk(input, chunks, dim = 0): so many equal parts, or as few as torch.chunk gives.
method("chunk", function(input, chunks, dim)
  local x, n = input, chunks
  local shape = core.shape(x)
  local d = dimension(shape, dim == nil and 0 or dim)
  n = base.whole(n, "the number of parts", 1)
  return equal_parts(x, d, (shape[d + 1] - 1) // n + 1)
end)

-- ------------------------------------------------------------------------------------------- joins

local MOST_JOINED, AT_ONCE = 512, 8

local function list_of_tensors(list)
  if base.kind(list) ~= "table" then misfit("it takes a list of tensors, not %s", base.a(list)) end
  local n, found = base.list(list, "what it joins"), {}
  if n == 0 or n > MOST_JOINED then misfit("it takes 1 to %d tensors, not %d", MOST_JOINED, n) end
  for i = 1, n do
    found[i] = base.tensor(rawget(list, i), string.format("tensor %d of the list", i))
    base.check_types(found[1], "the first tensor", found[i], "tensor " .. i)
  end
  return found
end

local function check_joined(list, d)
  local first = core.shape(list[1])
  for i = 2, #list do
    local other = core.shape(list[i])
    if #other ~= #first or not base.same_shape(resized(other, d, first[d + 1]), first) then
      misfit("shapes %s and %s do not fit along dimension %d", shape_text(first),
        shape_text(other), d)
    end
  end
end

-- At most AT_ONCE in one operation: more take several.
local function joined(list, d)
  if #list == 1 then return list[1] end
  local sum, inputs = 0, {}
  for first = 1, #list, AT_ONCE do
    local last = math.min(first + AT_ONCE - 1, #list)
    if #list <= AT_ONCE then
      inputs = list
    else
      inputs[#inputs + 1] = joined(table.move(list, first, last, 1, {}), d)
    end
  end
  if #inputs > AT_ONCE then return joined(inputs, d) end
  for _, x in ipairs(inputs) do sum = sum + core.shape(x)[d + 1] end
  return append("cat", inputs, {dims = {d}, shapes = {resized(core.shape(list[1]), d, sum)}})
end
base.joined = joined

--- F.cat(tensors, dim = 0): a list of tensors, side by side.
define("cat", function(tensors, dim)
  local list = list_of_tensors(tensors)
  local d = dimension(core.shape(list[1]), dim == nil and 0 or dim)
  check_joined(list, d)
  return joined(list, d)
end)

--- F.stack(tensors, dim = 0): a list of tensors along a new dimension.
define("stack", function(tensors, dim)
  local list = list_of_tensors(tensors)
  local shape = core.shape(list[1])
  local d = dimension(shape, dim == nil and 0 or dim, 1)
  local raised = {}
  for i, x in ipairs(list) do
    if not base.same_shape(core.shape(x), shape) then
      misfit("shapes %s and %s are not equal", shape_text(shape), shape_text(core.shape(x)))
    end
    raised[i] = unsqueeze(x, d)
  end
  return joined(raised, d)
end)

-- ------------------------------------------------------------------------------------- the borders

local MOST_BORDER = 1 << 40

-- Zeros before and after, along dimension d; negative counts crop.
local function padded(x, d, before, after)
  local shape = core.shape(x)
  local n = shape[d + 1]
  local start, stop = math.max(0, -before), n - math.max(0, -after)
  if start >= stop then
    misfit("nothing is left of dimension %d of the shape %s", d, shape_text(shape))
  end
  local part = narrow(x, d, start, stop - start)
  before, after = math.max(0, before), math.max(0, after)
  if before == 0 and after == 0 then return part end
  return append("pad", {part}, {dims = {d}, before = before,
    shapes = {resized(shape, d, before + stop - start + after)}})
end

-- The value where dimension d of x is in the padding.
local function filled(x, d, before, n, value)
  local shape = core.shape(x)
  local i = base.index_row(shape[d + 1])
  local inside = raw.logical_and(raw.ge(i, before), raw.lt(i, before + n))
  local across = ones(#shape - d)
  across[1] = shape[d + 1]
  return raw.where(view(inside, across), x, value)
end

-- {[dim] = {before, after}}, or PyTorch's {before the last, after it, before the one ahead, ...}.
-- Returns {dim, before, after} in the order of the dimensions.
local function borders(shape, given)
  if base.kind(given) ~= "table" then
    misfit("it takes {[dim] = {before, after}}, not %s", base.a(given))
  end
  local by_dim, list = {}, {}
  local function add(dim, before, after)
    local d = dimension(shape, dim)
    if by_dim[d] then misfit("dimension %d is named twice", d) end
    by_dim[d] = {d, base.whole(before, "a border", -MOST_BORDER, MOST_BORDER),
      base.whole(after, "a border", -MOST_BORDER, MOST_BORDER)}
  end
  local n = rawlen(given)
  if n > 0 and math.type(rawget(given, 1)) then
    base.list(given, "what names borders")
    if n % 2 == 1 or n > 2 * #shape then
      misfit("%d borders of a tensor of shape %s: each dimension has two", n, shape_text(shape))
    end
    for i = 1, n, 2 do add(-(i + 1) // 2, rawget(given, i), rawget(given, i + 1)) end
  else
    for dim, pair in pairs(given) do
      if base.kind(pair) ~= "table" then
        misfit("dimension %s needs {before, after}, not %s", tostring(dim), base.a(pair))
      end
      if base.list(pair, "{before, after}") > 2 then
        misfit("dimension %s has two borders, before and after", tostring(dim))
      end
      add(dim, rawget(pair, 1), rawget(pair, 2))
    end
  end
  for d = 0, #shape - 1 do list[#list + 1] = by_dim[d] end
  return list
end

--- F.pad(input, pad, mode = "constant", value?): borders; `pad` counts from the last dimension: `{left, right, top,
--- bottom}`; `"reflect"`, `"replicate"`, `"circular"`.
method("pad", function(input, pad, mode, value)
  local x, given = input, pad
  if mode == nil then mode = "constant" end
  if type(mode) ~= "string" then
    if value ~= nil then misfit('the mode must be "constant", not %s', base.a(mode)) end
    mode, value = "constant", mode
  end
  if mode == "reflect" or mode == "replicate" or mode == "circular" then
    if value ~= nil then misfit('a value goes with the mode "constant"') end
    local list, given_of = {}, {}
    for _, border in ipairs(borders(core.shape(x), given)) do given_of[border[1]] = border end
    for d = #core.shape(x) - 1, 0, -1 do
      local border = given_of[d] or {d, 0, 0}
      list[#list + 1], list[#list + 2] = border[2], border[3]
    end
    return base.operator_of_torch("pad", {self = x, pad = list, mode = mode})
  end
  if mode ~= "constant" then misfit('the mode is "constant", "reflect", "replicate" or "circular", not %s', base.a(mode)) end
  value = value == nil and 0 or value
  if type(value) ~= "number" then misfit("the value must be a number, not %s", base.a(value)) end
  for _, border in ipairs(borders(core.shape(x), given)) do
    local d, before, after = border[1], border[2], border[3]
    local n = core.shape(x)[d + 1] + math.min(0, before) + math.min(0, after)
    x = padded(x, d, before, after)
    if value ~= 0 and (before > 0 or after > 0) then
      x = filled(x, d, math.max(0, before), n, value)
    end
  end
  return x
end)
