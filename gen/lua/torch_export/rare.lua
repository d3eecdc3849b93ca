-- rare.lua: operators of exported programs that few models have; this file runs when a program has one that no other file
-- defines. Compositions: functions by polynomials, distances, histograms, bags of embeddings, windows, images of three
-- dimensions, sampled images, Fourier transforms as products with matrices of cosines and sines.
local core, base = ...
local raw, constants, fail, torch = base.raw, base.constants, base.fail, base.torch
local operators, on_complex = base.torch_operators, torch.on_complex
local complex, is_complex, zeros_of, shape_of = torch.complex, torch.is_complex, torch.zeros_of, torch.shape_of_either

local function is_float(x) return base.is_floating(x) end
local floats, plain_tensor = torch.floats, torch.plain_tensor

-- ------------------------------------------------------------------------------------ by polynomials

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
  local shift = raw.where(back, raw.where(down, -math.pi, math.pi), 0.0)
  return raw.where(steep, raw.sub(raw.where(down, -math.pi / 2, math.pi / 2), angle), raw.add(angle, shift))
end
for name, first in pairs{arctan = "atan", arcsin = "asin", arccos = "acos", arctan2 = "atan2", arcsinh = "asinh",
  arccosh = "acosh", arctanh = "atanh"} do
  operators[name] = operators[first]
end

-- ---------------------------------------------------------------------- distances, counts, by indices

operators._cdist_forward = function(a)
  local x = raw.sub(raw.unsqueeze(a.x1, -2), raw.unsqueeze(a.x2, -3))
  return raw.norm(x, a.p or 2, -1)
end
operators.cdist = operators._cdist_forward
operators._pdist_forward = function(a)
  local x, parts = a.self, {}
  local n = core.shape(x)[1]
  if n < 2 or n > 256 then fail("pdist supports 2 to 256 points, not %d", n) end
  for i = 1, n - 1 do
    parts[i] = raw.norm(raw.sub(raw.narrow(x, 0, i, n - i), raw.narrow(x, 0, i - 1, 1)), a.p or 2, 1)
  end
  return #parts == 1 and parts[1] or raw.cat(parts, 0)
end
operators.pdist = operators._pdist_forward
-- The number of elements in each of equal parts from min to max.
operators.histc = function(a)
  local bins, low, high = a.bins or 100, a.min or 0, a.max or 0
  if low == high then fail("histc needs min and max") end
  local x = raw.flatten(floats(a.self))
  local part = operators.floor{self = raw.mul(raw.sub(x, low), bins / (high - low))}
  part = raw.where(raw.eq(x, high), bins - 1.0, part)
  local n = core.shape(x)[1]
  local hits = raw.eq(base.view(part, {n, 1}), raw.to(raw.arange(bins), "float32"))
  local counts = raw.sum(raw.to(hits, "float32"), 0)
  return is_float(a.self) and counts or raw.to(counts, core.type(a.self))
end
operators._trilinear = function(a)
  local x = {a.i1, a.i2, a.i3}
  for i, dims in ipairs{a.expand1, a.expand2, a.expand3} do
    for _, d in ipairs(dims) do x[i] = raw.unsqueeze(x[i], d) end
  end
  return raw.sum(raw.mul(raw.mul(x[1], x[2]), x[3]), a.sumdim)
end
-- Of truths [n], how many there are up to each one; above 2^24, which floats count up to, by rows: before a row, and in it.
local EXACT, DIGIT = 1 << 24, 256
local function counted_up(truths, width)
  local n = base.elements(core.shape(truths))
  if n <= EXACT then return raw.to(raw.cumsum(raw.to(truths, "float32"), 0), "int32") end
  local rows = n // width
  if rows > EXACT // DIGIT or width > EXACT then
    fail("masked_scatter of %d rows of %d numbers is not supported: at most %d rows", rows, width, EXACT // DIGIT)
  end
  local within = raw.to(raw.cumsum(raw.to(base.view(truths, {rows, width}), "float32"), 1), "int32")
  local all = raw.select(within, 1, width - 1)
  local high = raw.floor_divide(all, DIGIT)
  local function up_to(v) return raw.to(raw.cumsum(raw.to(v, "float32"), 0), "int32") end
  local before = raw.add(raw.mul(up_to(high), DIGIT), up_to(raw.sub(all, raw.mul(high, DIGIT))))
  return base.view(raw.add(within, raw.unsqueeze(raw.sub(before, all), 1)), {n})
end

-- The elements of `source`, one after the other, where the mask is true: all ranks need all of both.
operators.masked_scatter = function(a)
  local shape = core.shape(a.self)
  local mask, n = raw.expand(a.mask, shape), base.elements(core.shape(a.source))
  local count = counted_up(raw.replicate(base.view(mask, {base.elements(shape)})), shape[#shape] or 1)
  local index = raw.clamp(raw.sub(count, 1), 0, n - 1)
  local taken = raw.index_select(base.view(raw.replicate(a.source), {n}), 0, raw.to(index, "int32"))
  return raw.where(mask, base.view(raw.to(taken, core.type(a.self)), shape), a.self)
end

-- ------------------------------------------------------------------------------------------- windows

-- The windows of images [b, c, h, w] that a convolution looks at: [b, c kernel, windows].
operators.im2col = function(a)
  local kernel, dilation, stride, border = a.kernel_size, a.dilation, a.stride, a.padding
  local x = raw.pad(a.self, {border[2], border[2], border[1], border[1]})
  local shape, list, out = core.shape(x), {}, {}
  if #shape ~= 4 then fail("im2col supports only [batch, channels, height, width]") end
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

-- The largest element of each window, and its index in the image, [.., y, x] as one.
operators.max_pool2d_with_indices = function(a)
  local y = operators.max_pool2d(a)
  if not a.reads_further then return y end
  local function two(v, otherwise)
    if v == nil or type(v) == "table" and #v == 0 then v = otherwise end
    return type(v) ~= "table" and {v, v} or #v == 1 and {v[1], v[1]} or v
  end
  local x, kernel, border = a.self, two(a.kernel_size), two(a.padding, 0)
  local stride, dilation, s, t = two(a.stride, kernel), two(a.dilation, 1), core.shape(a.self), core.shape(y)
  local h, w, first = s[#s - 1], s[#s], {}
  local lead = base.elements(s) // (h * w)
  local best, index
  x = base.view(raw.detach(x), {lead, h, w})
  -- Beyond the border at the far end, where ceil_mode has a window, all is as in the border.
  for i = 1, 2 do
    local size = i == 1 and h or w
    first[i] = math.max((t[#t - 2 + i] - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1 - size - border[i], 0)
  end
  x = raw.pad(x, {border[2], first[2], border[1], first[1]}, nil, -math.huge)
  local function places(n, by) return raw.mul(base.index_row(n), by) end
  for i = 0, kernel[1] - 1 do
    for j = 0, kernel[2] - 1 do
      local part = operators.slice{self = x, dim = 1, start = i * dilation[1],
        ["end"] = i * dilation[1] + (t[#t - 1] - 1) * stride[1] + 1, step = stride[1]}
      part = operators.slice{self = part, dim = 2, start = j * dilation[2],
        ["end"] = j * dilation[2] + (t[#t] - 1) * stride[2] + 1, step = stride[2]}
      local row = raw.add(places(t[#t - 1], stride[1]), i * dilation[1] - border[1])
      local at = raw.add(raw.mul(raw.unsqueeze(row, 1), w), raw.add(places(t[#t], stride[2]), j * dilation[2] - border[2]))
      at = raw.expand(raw.to(at, "int32"), {lead, t[#t - 1], t[#t]})
      local is_larger = best and raw.logical_or(raw.gt(part, best), raw.isnan(part))
      index = best and raw.where(is_larger, at, index) or at
      best = best and raw.where(is_larger, part, best) or part
    end
  end
  return y, raw.to(base.view(index, t), "int64")
end
operators.max_pool1d_with_indices = function(a)
  local function flat(v, otherwise)
    if v == nil or type(v) == "table" and #v == 0 then return otherwise end
    return {otherwise[1], type(v) == "table" and v[1] or v}
  end
  local kernel = flat(a.kernel_size, {1, 1})
  local y, index = operators.max_pool2d_with_indices{self = raw.unsqueeze(a.self, -2), kernel_size = kernel,
    stride = flat(a.stride, {1, kernel[2]}), padding = flat(a.padding, {0, 0}), dilation = flat(a.dilation, {1, 1}),
    ceil_mode = a.ceil_mode, reads_further = a.reads_further}
  return raw.squeeze(y, -2), index and raw.squeeze(index, -2)
end
operators.max_unpool2d = function(a)
  local s, size = core.shape(a.self), a.output_size
  local lead, n = base.elements(s) // (s[#s - 1] * s[#s]), s[#s - 1] * s[#s]
  local whole = raw.full({lead, size[1] * size[2]}, 0, core.type(a.self))
  local y = raw.scatter(whole, 1, base.view(a.indices, {lead, n}), base.view(a.self, {lead, n}))
  return base.view(y, table.move({size[1], size[2]}, 1, 2, #s - 1, table.move(s, 1, #s - 2, 1, {})))
end

-- The way back: the elements of windows at one place are added up, by a transposed convolution that puts each
-- element of a window in its place.
operators.col2im = function(a)
  local kernel, dilation, stride, border = a.kernel_size, a.dilation, a.stride, a.padding
  local shape, n, out, missing = core.shape(a.self), kernel[1] * kernel[2], {}, {}
  if #shape ~= 3 then fail("col2im supports only [batch, channels, windows]") end
  for i = 1, 2 do
    local room = a.output_size[i] + 2 * border[i] - dilation[i] * (kernel[i] - 1) - 1
    out[i], missing[i] = room // stride[i] + 1, room % stride[i]
  end
  local channels = shape[2] // n
  local places = raw.expand(base.view(constants.tensor(operators.eye{n = n}), {1, n, 1, n}), {channels, n, 1, n})
  return raw.conv_transpose2d(base.view(a.self, {shape[1], shape[2], out[1], out[2]}),
    base.view(places, {shape[2], 1, kernel[1], kernel[2]}), nil, stride, border, missing, channels, dilation)
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
  if #core.shape(a.self) ~= 4 then fail("adaptive_max_pool2d supports only [batch, channels, height, width]") end
  return largest_of_parts(largest_of_parts(a.self, 3, a.output_size[2]), 2, a.output_size[1])
end

-- ------------------------------------------------------------------------ images of three dimensions

local function three(v, otherwise)
  if v == nil or type(v) == "table" and #v == 0 then v = otherwise end
  if type(v) ~= "table" then v = {v} end
  return #v == 1 and {v[1], v[1], v[1]} or v
end

operators.conv3d = torch.calls("conv3d", "input", "weight", "bias", "stride", "padding", "dilation", "groups")

-- Windows over three dimensions are windows over the last two, and then over the first. part(v, otherwise): what an
-- argument says of the dimensions at hand.
local function over_three(pool)
  return function(a)
    local s = core.shape(a.self)
    if #s ~= 5 then fail("a pool over three dimensions supports only [batch, channels, depth, height, width]") end
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
  if a.divisor_override ~= nil then fail("avg_pool3d with a divisor is not supported") end
  return raw.avg_pool2d(x, part(a.kernel_size, 1), part(a.stride and #a.stride > 0 and a.stride or a.kernel_size, 1),
    part(a.padding, 0), a.ceil_mode, a.count_include_pad)
end)

operators._adaptive_avg_pool3d = function(a)
  local s, to = core.shape(a.self), three(a.output_size, 1)
  if #s ~= 5 then fail("adaptive_avg_pool3d supports only [batch, channels, depth, height, width]") end
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
-- or of the nearest one. Of volumes [n, c, d, h, w], at places [n, z, y, x, 3], of the eight.
operators.grid_sampler_2d = function(a)
  local s, t = core.shape(a.input), core.shape(a.grid)
  local mode, aligned, axes = a.interpolation_mode, a.align_corners, #s - 2
  if axes ~= 2 and axes ~= 3 or #t ~= #s or t[#t] ~= axes then
    fail("grid_sampler supports only images [n, c, y, x], at places [n, y, x, 2], and volumes [n, c, z, y, x], at places [n, z, y, x, 3]")
  end
  if mode ~= 0 and mode ~= 1 then fail("grid_sampler supports only bilinear and nearest") end
  local n, c, points = s[1], s[2], base.elements(t) // (t[1] * axes)
  local flat = base.view(a.input, {n, c, base.elements(s) // (n * c)})
  local function place(i, size)
    local v = raw.add(base.view(raw.select(a.grid, -1, i), {n, 1, points}), 1)
    v = aligned and raw.mul(v, (size - 1) / 2) or raw.mul(raw.sub(raw.mul(v, size), 1), 0.5)
    if a.padding_mode == 1 then return raw.clamp(v, 0, size - 1) end
    return a.padding_mode == 2 and reflected(v, size, aligned) or v
  end
  local round = mode == 0 and operators.floor or operators.round
  local function inside(v, size) return raw.logical_and(raw.ge(v, 0), raw.le(v, size - 1)) end
  local function whole(v, size) return raw.to(raw.clamp(v, 0, size - 1), "int32") end
  -- By axis, from x on: its size, the element before each place, and how far the place is from it.
  local size, before, far = {}, {}, {}
  for i = 1, axes do
    size[i] = s[#s + 1 - i]
    local v = place(i - 1, size[i])
    before[i] = round{self = v}
    far[i] = raw.sub(v, before[i])
  end
  local sum
  for corner = 0, mode == 0 and (1 << axes) - 1 or 0 do
    local index, weight, is_inside
    for i = axes, 1, -1 do
      local step = corner >> (i - 1) & 1
      local at = raw.add(before[i], step)
      local own, within = step == 1 and far[i] or raw.sub(1, far[i]), inside(at, size[i])
      index = index and raw.add(raw.mul(index, size[i]), whole(at, size[i])) or whole(at, size[i])
      weight = weight and raw.mul(weight, own) or own
      is_inside = is_inside and raw.logical_and(is_inside, within) or within
    end
    if mode == 1 then weight = 1.0 end
    local taken = raw.gather(flat, 2, raw.expand(index, {n, c, points}))
    local term = raw.mul(taken, raw.where(is_inside, weight, 0.0))
    sum = sum and raw.add(sum, term) or term
  end
  return base.view(sum, table.move(t, 2, #t - 1, 3, {n, c}))
end
operators.grid_sampler_3d = operators.grid_sampler_2d
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

-- ------------------------------------------------------------------------------- Fourier transforms

local MOST_POINTS = 46340 -- whose square is a whole number of 32 bits

-- Cosines and sines of 2 pi j k / n for j of `rows`, k of `columns`: of angles within half a circle, which floats hold
-- best.
local function fourier_matrices(rows, columns, n)
  if n > MOST_POINTS then fail("a Fourier transform of %d points is not supported: at most %d", n, MOST_POINTS) end
  local jk = raw.mul(base.view(raw.arange(rows), {rows, 1}), base.view(raw.arange(columns), {1, columns}))
  local whole = raw.to(raw.add(raw.mul(raw.to(jk, "float32"), 1 / n), 0.5), "int32")
  local angle = raw.mul(raw.to(raw.sub(jk, raw.mul(whole, n)), "float32"), 2 * math.pi / n)
  return raw.cos(angle), raw.sin(angle)
end

local along = base.product_along

-- Along dimension d, of a complex tensor.
local function transformed(z, d, inverse)
  local n = core.shape(z.re)[d + 1]
  local cos, sin = fourier_matrices(n, n, n)
  local a, b = along(z.im, d, sin), along(z.re, d, sin)
  local re, im = along(z.re, d, cos), along(z.im, d, cos)
  if inverse then return complex(raw.sub(re, a), raw.add(im, b)) end
  return complex(raw.add(re, a), raw.sub(im, b))
end

-- Of a real tensor; one_sided: the first half; the other one is its mirror image.
local function transformed_real(x, d, one_sided)
  local n = core.shape(x)[d + 1]
  local cos, sin = fourier_matrices(one_sided and n // 2 + 1 or n, n, n)
  return complex(along(x, d, cos), raw.neg(along(x, d, sin)))
end

-- n real numbers of one half: each except the first, and the middle of an even n, counts twice.
local function real_of_half(z, d, n)
  local m = n // 2 + 1
  local cos, sin = fourier_matrices(n, m, n)
  local k = base.view(raw.arange(m), {1, m})
  local once = raw.logical_or(raw.eq(k, 0), raw.eq(raw.mul(k, 2), n))
  local times = raw.where(once, 1.0, 2.0)
  return raw.sub(along(z.re, d, raw.mul(cos, times)), along(z.im, d, raw.mul(sin, times)))
end

local function scaled(x, by)
  if by == 1 then return x end
  if is_complex(x) then return complex(raw.mul(x.re, by), raw.mul(x.im, by)) end
  return raw.mul(x, by)
end

-- The factor that a normalization is, of so many points: 0 none, 1 by the root, 2 by their number.
local function factor(normalization, points)
  if normalization < 0 or normalization > 2 then fail("a Fourier transform with the normalization %s is not supported", normalization) end
  return normalization == 0 and 1 or normalization == 1 and points ^ -0.5 or 1 / points
end

local function points_of(x, dims)
  local n = 1
  for _, d in ipairs(dims) do n = n * shape_of(x)[d + 1] end
  return n
end

local function places(x, dims)
  local list = {}
  for i, d in ipairs(dims) do list[i] = base.dimension(shape_of(x), d) end
  return list
end

local function complex_transform(x, dims, normalization, inverse)
  local by, first = factor(normalization, points_of(x, dims)), 1
  if not is_complex(x) and #dims > 0 then
    if inverse then
      x = complex(x, zeros_of(x))
    else
      x, first = transformed_real(x, dims[1], false), 2
    end
  end
  for i = first, #dims do x = transformed(x, dims[i], inverse) end
  return scaled(x, by)
end

local function real_transform(x, dims, normalization, one_sided)
  local by = factor(normalization, points_of(x, dims))
  local z = transformed_real(x, dims[#dims], one_sided)
  for i = 1, #dims - 1 do z = transformed(z, dims[i], false) end
  return scaled(z, by)
end

-- x with `size` elements along dimension d: its first ones, and zeros after them.
local function sized(x, d, size)
  local n = shape_of(x)[d + 1]
  if is_complex(x) then return complex(sized(x.re, d, size), sized(x.im, d, size)) end
  if n >= size then return base.narrow(x, d, 0, size) end
  local pad = {}
  for _ = d + 1, #shape_of(x) - 1 do pad[#pad + 1], pad[#pad + 2] = 0, 0 end
  pad[#pad + 1], pad[#pad + 2] = 0, size - n
  return raw.pad(x, pad)
end

local function back_to_real(z, dims, normalization, size)
  if not is_complex(z) then z = complex(z, zeros_of(z)) end
  local last, points = dims[#dims], size
  for i = 1, #dims - 1 do points = points * shape_of(z)[dims[i] + 1] end
  for i = 1, #dims - 1 do z = transformed(z, dims[i], true) end
  return scaled(real_of_half(sized(z, last, size // 2 + 1), last, size), factor(normalization, points))
end

-- In core ATen.
local function of_either(name, f) operators[name], on_complex[name] = f, f end
of_either("_fft_c2c", function(a)
  return complex_transform(a.self, places(a.self, a.dim), a.normalization, not a.forward)
end)
of_either("_fft_r2c", function(a) return real_transform(a.self, places(a.self, a.dim), a.normalization, a.onesided) end)
of_either("_fft_c2r", function(a)
  return back_to_real(a.self, places(a.self, a.dim), a.normalization, a.last_dim_size)
end)

-- PyTorch's functions: norm says where the factor is.
local function normalization(norm, inverse)
  if norm == "ortho" then return 1 end
  return (norm == "forward") == inverse and 0 or 2
end

-- The dimensions, and the sizes that are asked for: false where a dimension keeps its own.
local function asked(a, of_one, otherwise)
  local x, dims, sizes = a.self, a.dim, a.s
  if of_one then dims, sizes = {a.dim or -1}, a.n and {a.n} or nil end
  if dims == nil then
    dims = {}
    local n = otherwise or sizes and #sizes or #shape_of(x)
    for i = 1, n do dims[i] = i - 1 - n end
  end
  local list = {}
  for i = 1, #dims do list[i] = sizes and sizes[i] ~= -1 and sizes[i] or false end
  return places(x, dims), list
end

local function fourier(name, f)
  for suffix, kind in pairs{[""] = {true}, n = {false}, ["2"] = {false, 2}} do
    of_either("fft_" .. name .. suffix, function(a)
      local dims, sizes = asked(a, kind[1], kind[2])
      return f(a.self, dims, sizes, a.norm)
    end)
  end
end

local function with_sizes(x, dims, sizes)
  for i, d in ipairs(dims) do
    if sizes[i] then x = sized(x, d, sizes[i]) end
  end
  return x
end
fourier("fft", function(x, dims, sizes, norm)
  return complex_transform(with_sizes(x, dims, sizes), dims, normalization(norm, false), false)
end)
fourier("ifft", function(x, dims, sizes, norm)
  return complex_transform(with_sizes(x, dims, sizes), dims, normalization(norm, true), true)
end)
fourier("rfft", function(x, dims, sizes, norm)
  return real_transform(with_sizes(x, dims, sizes), dims, normalization(norm, false), true)
end)
fourier("irfft", function(x, dims, sizes, norm)
  local last = #dims
  local size = sizes[last] or 2 * (shape_of(x)[dims[last] + 1] - 1)
  sizes[last] = false
  return back_to_real(with_sizes(x, dims, sizes), dims, normalization(norm, true), size)
end)

for name, rounded in pairs{fft_fftshift = 0, fft_ifftshift = 1} do
  of_either(name, function(a)
    local dims, shifts = asked({self = a.self, dim = a.dim}, false), {}
    for i, d in ipairs(dims) do shifts[i] = (shape_of(a.self)[d + 1] + rounded) // 2 end
    return (is_complex(a.self) and on_complex or operators).roll{self = a.self, shifts = shifts, dims = dims}
  end)
end
