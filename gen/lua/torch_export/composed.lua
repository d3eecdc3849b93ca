-- composed.lua: operators of exported programs that are made of others: second names, windows of a tensor, one
-- step of a recurrence, products of several tensors.
local core, base = ...
local raw, constants, fail, torch = base.raw, base.constants, base.fail, base.torch
local operators, on_constants, is_tensor = base.torch_operators, base.torch_on_constants, core.is_tensor

-- Second names of PyTorch's, with the same arguments.
for name, first in pairs{multiply = "mul", subtract = "sub", divide = "div", true_divide = "div", negative = "neg",
  absolute = "abs", clip = "clamp", concat = "cat", concatenate = "cat", greater = "gt", greater_equal = "ge",
  less = "lt", less_equal = "le", not_equal = "ne"} do
  operators[name] = operators[name] or operators[first]
  on_constants[name] = on_constants[name] or on_constants[first]
end

operators.tile = function(a) return raw.tile(a.self, a.dims) end

-- meshgrid of vectors: each of them along a dimension of its own.
local function grid(vectors, indexing, size_of, view, expand)
  local sizes, order, results = {}, {}, {}
  for i, x in ipairs(vectors) do sizes[i], order[i] = size_of(x), i end
  if indexing == "xy" and #vectors > 1 then order[1], order[2], sizes[1], sizes[2] = 2, 1, sizes[2], sizes[1] end
  for i, x in ipairs(vectors) do
    local shape = {}
    for d = 1, #vectors do shape[d] = d == order[i] and sizes[d] or 1 end
    results[i] = expand(view(x, shape), sizes)
    if not results[i] then return nil end
  end
  return table.unpack(results)
end
operators.meshgrid = function(a)
  return grid(a.tensors, a.indexing, function(x) return base.elements(core.shape(x)) end, base.view, raw.expand)
end
on_constants.meshgrid = function(a)
  return grid(a.tensors, a.indexing, function(x) return base.elements(x.shape) end, constants.reshape, constants.expand)
end

-- ------------------------------------------------------------------------------- element by element

operators.threshold = function(a) return raw.where(raw.gt(a.self, a.threshold), a.self, a.value) end
operators.hardshrink = function(a) return raw.where(raw.gt(raw.abs(a.self), a.lambd or 0.5), a.self, 0.0) end
operators.softshrink = function(a)
  local most = a.lambd or 0.5
  return raw.sub(a.self, raw.clamp(a.self, -most, most))
end

-- By a polynomial for numbers up to tan(pi / 8), to which those of others lead.
local SMALL, LARGE = math.tan(math.pi / 8), math.tan(3 * math.pi / 8)
local function atan(x)
  local below = raw.lt(x, 0)
  local size = raw.where(below, raw.neg(x), x)
  local far, middle = raw.gt(size, LARGE), raw.gt(size, SMALL)
  local t = raw.where(middle, raw.div(raw.sub(size, 1), raw.add(size, 1)), size)
  t = raw.where(far, raw.div(-1, raw.where(far, size, 1.0)), t)
  local z, sum = raw.square(t), 8.05374449538e-2
  for _, c in ipairs{-1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1} do sum = raw.add(raw.mul(z, sum), c) end
  local y = raw.add(t, raw.mul(raw.mul(sum, z), t))
  y = raw.add(y, raw.where(far, math.pi / 2, raw.where(middle, math.pi / 4, 0.0)))
  return raw.where(below, raw.neg(y), y)
end
operators.atan = function(a) return atan(a.self) end
operators.asin = function(a)
  return atan(raw.div(a.self, raw.sqrt(raw.mul(raw.sub(1, a.self), raw.add(1, a.self)))))
end
operators.acos = function(a)
  return raw.mul(2, atan(raw.sqrt(raw.div(raw.sub(1, a.self), raw.add(1, a.self)))))
end
-- The angle of (x, y): by the quotient of the smaller by the larger one.
operators.atan2 = function(a)
  local y, x = torch.promoted(a.self, a.other)
  local steep = raw.gt(raw.abs(y), raw.abs(x))
  local above, under = raw.where(steep, x, y), raw.where(steep, y, x)
  local angle = atan(raw.div(above, raw.where(raw.eq(under, 0), 1.0, under)))
  local down, back = raw.lt(y, 0), raw.lt(x, 0)
  local turn = raw.where(back, raw.where(down, -math.pi, math.pi), 0.0)
  return raw.where(steep, raw.sub(raw.where(down, -math.pi / 2, math.pi / 2), angle), raw.add(angle, turn))
end
for name, first in pairs{arctan = "atan", arcsin = "asin", arccos = "acos", arctan2 = "atan2", arcsinh = "asinh",
  arccosh = "acosh", arctanh = "atanh"} do
  operators[name] = operators[first]
end

-- The elements of `source`, one after the other, where the mask is true.
operators.masked_scatter = function(a)
  local shape = core.shape(a.self)
  local mask = raw.expand(a.mask, shape)
  local n, count = base.elements(core.shape(a.source)), raw.cumsum(raw.to(base.view(mask, {base.elements(shape)}), "float32"), 0)
  local index = raw.to(raw.clamp(raw.sub(count, 1), 0, n - 1), "int32")
  local taken = raw.index_select(base.view(a.source, {n}), 0, index)
  return raw.where(mask, base.view(raw.to(taken, core.type(a.self)), shape), a.self)
end

-- ----------------------------------------------------------------------------------------- windows

-- Windows of `size` elements, `step` apart, along a dimension; the elements of one are the last dimension.
operators.unfold = function(a)
  local x, size, step = a.self, a.size, a.step
  local shape = core.shape(x)
  local d = base.dimension(shape, a.dimension)
  local n = (shape[d + 1] - size) // step + 1
  local windows, order = {}, {}
  if n < 1 then fail("unfold of %d elements makes no window of %d", shape[d + 1], size) end
  for i = 1, n do windows[i] = raw.narrow(x, d, (i - 1) * step, size) end
  local y = step == size and raw.unflatten(raw.narrow(x, d, 0, n * size), d, {n, size})
    or raw.stack(windows, d)
  for i = 0, #shape do
    if i ~= d + 1 then order[#order + 1] = i end
  end
  order[#order + 1] = d + 1
  return raw.permute(y, order)
end

-- The windows of images [b, c, h, w] that a convolution looks at: [b, c kernel, windows].
operators.im2col = function(a)
  local kernel, dilation, stride, border = a.kernel_size, a.dilation, a.stride, a.padding
  local x = raw.pad(a.self, {border[2], border[2], border[1], border[1]})
  local shape, list, out = core.shape(x), {}, {}
  if #shape ~= 4 then fail("im2col is there of [batch, channels, height, width] alone") end
  for i = 1, 2 do out[i] = (shape[i + 2] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 end
  for i = 0, kernel[1] - 1 do
    local first = i * dilation[1]
    local rows = operators.slice{self = x, dim = 2, start = first, ["end"] = first + (out[1] - 1) * stride[1] + 1,
      step = stride[1]}
    for j = 0, kernel[2] - 1 do
      first = j * dilation[2]
      list[#list + 1] = operators.slice{self = rows, dim = 3, start = first,
        ["end"] = first + (out[2] - 1) * stride[2] + 1, step = stride[2]}
    end
  end
  return base.view(raw.stack(list, 2), {shape[1], shape[2] * #list, out[1] * out[2]})
end

-- The way back: what windows have of one place is added up, by a transposed convolution that puts each element of a
-- window in its place.
operators.col2im = function(a)
  local kernel, dilation, stride, border = a.kernel_size, a.dilation, a.stride, a.padding
  local shape, n, out, missing = core.shape(a.self), kernel[1] * kernel[2], {}, {}
  if #shape ~= 3 then fail("col2im is there of [batch, channels, windows] alone") end
  for i = 1, 2 do
    local room = a.output_size[i] + 2 * border[i] - dilation[i] * (kernel[i] - 1) - 1
    out[i], missing[i] = room // stride[i] + 1, room % stride[i]
  end
  local channels = shape[2] // n
  local places = raw.expand(base.view(constants.tensor(operators.eye{n = n}), {1, n, 1, n}), {channels, n, 1, n})
  return raw.conv_transpose2d(base.view(a.self, {shape[1], shape[2], out[1], out[2]}),
    base.view(places, {shape[2], 1, kernel[1], kernel[2]}), nil, stride, border, missing, channels, dilation)
end
operators.pixel_unshuffle = function(a)
  local s, r = core.shape(a.self), a.downscale_factor
  if #s ~= 4 or s[3] % r ~= 0 or s[4] % r ~= 0 then fail("pixel_unshuffle is there of [n, c, r y, r x] alone") end
  local x = raw.permute(base.view(a.self, {s[1], s[2], s[3] // r, r, s[4] // r, r}), {0, 1, 3, 5, 2, 4})
  return base.view(x, {s[1], s[2] * r * r, s[3] // r, s[4] // r})
end

-- The largest of each of n parts along a dimension of images: part i begins at i size / n.
local function largest_of_parts(x, d, n)
  local size, parts = core.shape(x)[d + 1], {}
  for i = 0, n - 1 do
    local first = i * size // n
    local length = ((i + 1) * size + n - 1) // n - first
    parts[i + 1] = raw.max_pool2d(raw.narrow(x, d, first, length), d == 2 and {length, 1} or {1, length})
  end
  return #parts == 1 and parts[1] or raw.cat(parts, d)
end
operators.adaptive_max_pool2d = function(a)
  if #core.shape(a.self) ~= 4 then fail("adaptive_max_pool2d is there of [batch, channels, height, width] alone") end
  return largest_of_parts(largest_of_parts(a.self, 3, a.output_size[2]), 2, a.output_size[1])
end

-- ------------------------------------------------------------------------ images of three dimensions

local function three(v, otherwise)
  if v == nil or type(v) == "table" and #v == 0 then v = otherwise end
  if type(v) ~= "table" then v = {v} end
  return #v == 1 and {v[1], v[1], v[1]} or v
end

-- Each plane of the kernel is a convolution over two dimensions, of the planes that it meets.
operators.conv3d = function(a)
  if type(a.padding) == "string" then fail("conv3d with padding '%s' is not there", a.padding) end
  local stride, border, dilation = three(a.stride, 1), three(a.padding, 0), three(a.dilation, 1)
  local x, kernel = raw.pad(a.input, {0, 0, 0, 0, border[1], border[1]}), core.shape(a.weight)
  local s, sum = core.shape(x), nil
  if #s ~= 5 then fail("conv3d is there of [batch, channels, depth, height, width] alone") end
  local n = (s[3] - dilation[1] * (kernel[3] - 1) - 1) // stride[1] + 1
  for i = 0, kernel[3] - 1 do
    local first = i * dilation[1]
    local planes = operators.slice{self = x, dim = 2, start = first, ["end"] = first + (n - 1) * stride[1] + 1,
      step = stride[1]}
    local y = raw.conv2d(base.view(raw.transpose(planes, 1, 2), {s[1] * n, s[2], s[4], s[5]}), raw.select(a.weight, 2, i),
      i == 0 and a.bias or nil, {stride[2], stride[3]}, {border[2], border[3]}, {dilation[2], dilation[3]}, a.groups)
    sum = sum and raw.add(sum, y) or y
  end
  local t = core.shape(sum)
  return raw.transpose(base.view(sum, {s[1], n, t[2], t[3], t[4]}), 1, 2)
end
local convolution = operators.convolution
operators.convolution = function(a)
  if #core.shape(a.weight) == 5 and not a.transposed then return operators.conv3d(a) end
  return convolution(a)
end

-- Windows over three dimensions are windows over the last two, and then over the first. part(v, otherwise): what an
-- argument says of the dimensions at hand.
local function over_three(pool)
  return function(a)
    local s = core.shape(a.self)
    if #s ~= 5 then fail("a pool over three dimensions is there of [batch, channels, depth, height, width] alone") end
    local y = pool(base.view(a.self, {s[1], s[2] * s[3], s[4], s[5]}), a, function(v, otherwise)
      return {three(v, otherwise)[2], three(v, otherwise)[3]}
    end)
    local t = core.shape(y)
    y = pool(base.view(y, {s[1], s[2], s[3], t[3] * t[4]}), a, function(v, otherwise)
      return {three(v, otherwise)[1], otherwise}
    end)
    return base.view(y, {s[1], s[2], core.shape(y)[3], t[3], t[4]})
  end
end
operators.max_pool3d = over_three(function(x, a, part)
  return raw.max_pool2d(x, part(a.kernel_size, 1), part(a.stride and #a.stride > 0 and a.stride or a.kernel_size, 1),
    part(a.padding, 0), part(a.dilation, 1), a.ceil_mode)
end)
operators.max_pool3d_with_indices = operators.max_pool3d
operators.avg_pool3d = over_three(function(x, a, part)
  if a.divisor_override ~= nil then fail("avg_pool3d with a divisor is not there") end
  return raw.avg_pool2d(x, part(a.kernel_size, 1), part(a.stride and #a.stride > 0 and a.stride or a.kernel_size, 1),
    part(a.padding, 0), a.ceil_mode, a.count_include_pad)
end)

operators._adaptive_avg_pool3d = function(a)
  local s, to = core.shape(a.self), three(a.output_size, 1)
  if #s ~= 5 then fail("adaptive_avg_pool3d is there of [batch, channels, depth, height, width] alone") end
  local y = raw.adaptive_avg_pool2d(base.view(a.self, {s[1], s[2] * s[3], s[4], s[5]}), {to[2], to[3]})
  local t = core.shape(y)
  y = raw.adaptive_avg_pool2d(base.view(y, {s[1], s[2], s[3], t[3] * t[4]}), {to[1], false})
  return base.view(y, {s[1], s[2], core.shape(y)[3], t[3], t[4]})
end
operators.adaptive_avg_pool3d = operators._adaptive_avg_pool3d

-- --------------------------------------------------------------------------------- sampled images

-- A place v among `size` elements, reflected at the borders.
local function reflected(v, size, aligned)
  local low, span = aligned and 0 or -0.5, aligned and size - 1 or size
  if span == 0 then return raw.mul(v, 0) end
  local far = raw.abs(raw.sub(v, low))
  local times = operators.floor{self = raw.div(far, span)}
  local rest = raw.sub(far, raw.mul(times, span))
  local odd = raw.ne(operators.remainder{self = times, other = 2.0}, 0)
  return raw.clamp(raw.add(raw.where(odd, raw.sub(span, rest), rest), low), 0, size - 1)
end

-- Of images [n, c, h, w] the values at places [n, y, x, 2], which go from -1 to 1: of the four elements around each,
-- or of the nearest one.
operators.grid_sampler_2d = function(a)
  local s, t = core.shape(a.input), core.shape(a.grid)
  local mode, aligned = a.interpolation_mode, a.align_corners
  if #s ~= 4 or #t ~= 4 then fail("grid_sampler is there of images [n, c, y, x] alone") end
  if mode ~= 0 and mode ~= 1 then fail("grid_sampler is there for bilinear and nearest alone") end
  local n, c, points = s[1], s[2], t[2] * t[3]
  local flat = base.view(a.input, {n, c, s[3] * s[4]})
  local function place(i, size)
    local v = raw.add(base.view(raw.select(a.grid, -1, i), {n, 1, points}), 1)
    v = aligned and raw.mul(v, (size - 1) / 2) or raw.mul(raw.sub(raw.mul(v, size), 1), 0.5)
    if a.padding_mode == 1 then return raw.clamp(v, 0, size - 1) end
    return a.padding_mode == 2 and reflected(v, size, aligned) or v
  end
  local x, y = place(0, s[4]), place(1, s[3])
  local round = mode == 0 and operators.floor or operators.round
  local x0, y0 = round{self = x}, round{self = y}
  local right, down = raw.sub(x, x0), raw.sub(y, y0)
  local function inside(v, size) return raw.logical_and(raw.ge(v, 0), raw.le(v, size - 1)) end
  local function whole(v, size) return raw.to(raw.clamp(v, 0, size - 1), "int32") end
  local sum
  for i = 0, mode == 0 and 1 or 0 do
    for j = 0, mode == 0 and 1 or 0 do
      local u, v = raw.add(x0, j), raw.add(y0, i)
      local index = raw.add(raw.mul(whole(v, s[3]), s[4]), whole(u, s[4]))
      local taken = raw.gather(flat, 2, raw.expand(index, {n, c, points}))
      local weight = 1.0
      if mode == 0 then weight = raw.mul(j == 1 and right or raw.sub(1, right), i == 1 and down or raw.sub(1, down)) end
      local term = raw.mul(taken, raw.where(raw.logical_and(inside(u, s[4]), inside(v, s[3])), weight, 0.0))
      sum = sum and raw.add(sum, term) or term
    end
  end
  return base.view(sum, {n, c, t[2], t[3]})
end
operators.grid_sampler = operators.grid_sampler_2d

-- The weight of each element, at distance v in units of a scale, for an image that gets smaller without aliases.
local FILTERS = {
  bilinear = {1, function(v) return raw.maximum(raw.sub(1, v), 0.0) end},
  bicubic = {2, function(v)
    local near, far = base.cubic_weights[1](v, -0.5), base.cubic_weights[2](v, -0.5)
    return raw.where(raw.lt(v, 1), near, raw.where(raw.lt(v, 2), far, 0.0))
  end},
}
local function smoothed(x, d, to, factor, aligned, filter)
  local from = core.shape(x)[d + 1]
  local scale = factor and 1 / factor or from / to
  if aligned then scale = to > 1 and (from - 1) / (to - 1) or 0 end
  local wide = math.max(scale, 1)
  local reach = filter[1] * wide
  local center = raw.mul(raw.add(base.view(raw.to(raw.arange(to), "float32"), {to, 1}), 0.5), scale)
  local i = base.view(raw.to(raw.arange(from), "float32"), {1, from})
  -- Whole numbers from center - reach to center + reach, each rounded to the nearest.
  local first = raw.maximum(raw.to(raw.add(raw.sub(center, reach), 0.5), "int32"), 0)
  local last = raw.minimum(raw.to(raw.add(raw.add(center, reach), 0.5), "int32"), from)
  local seen = raw.logical_and(raw.ge(i, raw.to(first, "float32")), raw.lt(i, raw.to(last, "float32")))
  local weights = filter[2](raw.abs(raw.mul(raw.add(raw.sub(i, center), 0.5), 1 / wide)))
  weights = raw.where(seen, weights, 0.0)
  return base.product_along(x, d, raw.div(weights, raw.sum(weights, 1, true)))
end
for mode, filter in pairs(FILTERS) do
  operators["_upsample_" .. mode .. "2d_aa"] = function(a)
    local x, factors = a.input or a.self, a.scale_factors or {a.scales_h or false, a.scales_w or false}
    for i = 2, 1, -1 do
      local to = a.output_size and a.output_size[i] or math.floor(core.shape(x)[i + 2] * factors[i])
      x = smoothed(x, i + 1, to, factors[i], a.align_corners, filter)
    end
    return x
  end
end

-- ---------------------------------------------------------------------------- steps of recurrences

local function gates_of(a)
  local hidden = is_tensor(a.hx) and a.hx or a.hx[1]
  return raw.linear(a.input, a.w_ih, a.b_ih), raw.linear(hidden, a.w_hh, a.b_hh), hidden
end
operators.gru_cell = function(a)
  local x, h, hidden = gates_of(a)
  return torch.gru_step(x, h, hidden)
end
operators.lstm_cell = function(a)
  local x, h = gates_of(a)
  return torch.lstm_step(raw.add(x, h), a.hx[2])
end
for _, name in ipairs{"tanh", "relu"} do
  operators["rnn_" .. name .. "_cell"] = function(a)
    local x, h = gates_of(a)
    return raw[name](raw.add(x, h))
  end
end

-- ---------------------------------------------------------------------------------------- products

operators.vdot = function(a) return raw.matmul(a.self, a.other) end

-- Three tensors and more: the first two, and so on. A letter stays as long as something after has it.
operators.einsum = function(a)
  local list = table.move(a.tensors, 1, #a.tensors, 1, {})
  -- Capital letters are others than small ones.
  local equation, names = string.gsub(a.equation, "%s", ""), {}
  for c in string.gmatch("abcdefghijklmnopqrstuvwxyz", "%a") do
    if not string.find(equation, c, 1, true) then names[#names + 1] = c end
  end
  local small = {}
  equation = string.gsub(equation, "%u", function(c)
    small[c] = small[c] or table.remove(names)
    return small[c] or fail("einsum with more than 26 letters is not there")
  end)
  local left, out = string.match(equation, "^([%a,]+)%->(%a*)$")
  if #list < 3 or not left then return raw.einsum(equation, table.unpack(list)) end
  local letters = {}
  for one in string.gmatch(left .. ",", "(%a*),") do letters[#letters + 1] = one end
  while #list > 2 do
    local rest, kept = out .. table.concat(letters, "", 3), ""
    for c in string.gmatch(letters[1] .. letters[2], "%a") do
      if string.find(rest, c, 1, true) and not string.find(kept, c, 1, true) then kept = kept .. c end
    end
    local y = raw.einsum(letters[1] .. "," .. letters[2] .. "->" .. kept, list[1], list[2])
    table.remove(list, 1)
    table.remove(letters, 1)
    list[1], letters[1] = y, kept
  end
  return raw.einsum(letters[1] .. "," .. letters[2] .. "->" .. out, list[1], list[2])
end
