-- images.lua: convolution and pooling, as in torch.nn.functional.
local core, base = ...
local append, raw, method = core.append, base.raw, base.method
local misfit, shape_text, view = base.misfit, base.shape_text, base.view

local MOST = 1 << 20

-- A number for all n dimensions, or a list of one for each, {y, x}, or of one for all.
local function sizes_of(v, n, what, least, otherwise)
  if v == nil then v = otherwise end
  if base.kind(v) ~= "table" then v = {v} end
  local given = base.list(v, what)
  if given ~= 1 and given ~= n then
    misfit("%s is a number, or a list of %d, not of %d", what, n, given)
  end
  local list = {}
  for i = 1, n do list[i] = base.whole(rawget(v, given == 1 and 1 or i), what, least, MOST) end
  return list
end

-- The number of windows that fit. ceil_mode: also one that begins inside and ends outside.
local function windows(x, size, window, stride, before, after, dilation, ceil_mode)
  local room = size + before + after - dilation * (window - 1) - 1
  local n = room // stride + 1
  if room < 0 then
    misfit("a window of %d does not fit the shape %s", dilation * (window - 1) + 1,
      shape_text(core.shape(x)))
  end
  if ceil_mode and room % stride > 0 and n * stride < size + before then n = n + 1 end
  return n
end

-- Zeros at the borders of the last dimensions: {before, after} for each of them.
local function with_borders(x, borders)
  local list, any = {}, false
  for i = #borders, 1, -1 do
    list[#list + 1], list[#list + 2] = borders[i][1], borders[i][2]
    any = any or borders[i][1] ~= 0 or borders[i][2] ~= 0
  end
  return any and raw.pad(x, list) or x
end

-- ------------------------------------------------------------------------------------ convolutions

-- For n dimensions: x [batch, channels, ...] or [channels, ...], weight [out, in / groups, ...].
local function check_conv(x, weight, groups, n)
  base.need_floating(base.tensor(weight, "the weight"))
  local s, t = core.shape(base.need_floating(x)), core.shape(weight)
  local dims = n == 1 and "x" or "y, x"
  if #s ~= n + 2 or #t ~= n + 2 then
    misfit("it takes images [n, channels, %s] and weights [out, in, %s], not the shapes %s and %s", dims,
      dims, shape_text(s), shape_text(t))
  end
  if s[2] ~= t[2] * groups or t[1] % groups ~= 0 then
    misfit("images %s do not fit weights %s in %d groups", shape_text(s), shape_text(t), groups)
  end
  return s, t
end

-- "same", "valid", or zeros before and after: {before, after} for each dimension.
local function borders_of(padding, kernel, stride, dilation)
  local borders = {}
  if padding == "same" then
    for i, k in ipairs(kernel) do
      if stride[i] ~= 1 then misfit('padding "same" goes with a stride of 1') end
      local all = dilation[i] * (k - 1)
      borders[i] = {all // 2, all - all // 2}
    end
    return borders
  end
  if padding == "valid" then padding = 0 end
  if type(padding) == "string" then
    misfit('padding is a number, a list, "same" or "valid", not %s', base.a(padding))
  end
  for i, p in ipairs(sizes_of(padding, #kernel, "the padding", 0, 0)) do borders[i] = {p, p} end
  return borders
end

local function with_bias(y, x, bias, weight, channels)
  if bias == nil then return base.narrowed(y, x) end
  local size = core.shape(base.tensor(bias, "the bias"))
  if #size ~= 1 or size[1] ~= channels then
    misfit("a bias of shape %s does not fit weights %s", shape_text(size), shape_text(core.shape(weight)))
  end
  local across = {channels}
  for _ = 3, #core.shape(y) do across[#across + 1] = 1 end
  return base.narrowed(raw.add(y, view(bias, across)), x)
end

-- As an image: one-dimensional input gets a dimension of size 1 before the last.
local function as_image(x, n)
  return n == 2 and x or raw.unsqueeze(x, -2)
end
local function as_image_sizes(list, other)
  return #list == 2 and list or {other, list[1]}
end

local function convolution(input, weight, bias, stride, padding, dilation, groups, n)
  groups = groups == nil and 1 or base.whole(groups, "groups", 1, MOST)
  local alone = #core.shape(input) == n + 1
  local x = alone and raw.unsqueeze(input, 0) or input
  local s, t = check_conv(x, weight, groups, n)
  local kernel = table.move(t, 3, n + 2, 1, {})
  stride = sizes_of(stride, n, "the stride", 1, 1)
  dilation = sizes_of(dilation, n, "the dilation", 1, 1)
  local borders = borders_of(padding, kernel, stride, dilation)
  -- The operator pads equally on both sides.
  local even, outer = {}, {}
  for i, b in ipairs(borders) do
    even[i] = math.min(b[1], b[2])
    outer[i] = {b[1] - even[i], b[2] - even[i]}
  end
  x = with_borders(x, outer)
  s = core.shape(x)
  local shape = {s[1], t[1]}
  for i = 1, n do
    shape[i + 2] = windows(x, s[i + 2], kernel[i], stride[i], even[i], even[i], dilation[i])
  end
  stride, dilation, even = as_image_sizes(stride, 1), as_image_sizes(dilation, 1), as_image_sizes(even, 0)
  local y = append("conv2d", {as_image(x, n), as_image(weight, n)}, {stride_y = stride[1],
    stride_x = stride[2], pad_y = even[1], pad_x = even[2], dilation_y = dilation[1],
    dilation_x = dilation[2],
    shapes = {n == 2 and shape or {shape[1], shape[2], 1, shape[3]}}})
  if n == 1 then y = view(y, shape) end
  y = with_bias(y, input, bias, weight, t[1])
  return alone and raw.squeeze(y, 0) or y
end

-- conv1d, conv2d(x, weight, bias, stride, padding, dilation, groups): padding may be "same".
for n = 1, 2 do
  --- # Images
  --- F.conv1d(input, weight, bias?, stride = 1, padding = 0, dilation = 1, groups = 1): of `[batch, channels, x]`;
  --- `padding` may be `"same"` or `"valid"`.
  --- F.conv2d(input, weight, bias?, stride = 1, padding = 0, dilation = 1, groups = 1): of `[batch, channels, y, x]`;
  --- sizes are a number or `{y, x}`.
  method("conv" .. n .. "d", function(input, weight, bias, stride, padding, dilation, groups)
    return convolution(input, weight, bias, stride, padding, dilation, groups, n)
  end)
end

-- ----------------------------------------------------------------------------------------- pooling

local function true_or_false(v, what)
  if v ~= nil and type(v) ~= "boolean" then misfit("%s must be true or false, not %s", what, base.a(v)) end
  return v
end

-- The options for windows over the last n dimensions: {kernel =, stride =, pad =, sizes =}.
local function pooled(x, kernel_size, stride, padding, ceil_mode, n)
  local s = core.shape(base.need_floating(x))
  if #s <= n then
    misfit("it takes images [..., %s], not the shape %s", n == 1 and "x" or "y, x", shape_text(s))
  end
  if kernel_size == nil then misfit("say kernel_size") end
  local kernel = sizes_of(kernel_size, n, "the kernel", 1)
  local has_stride = stride ~= nil and not (base.kind(stride) == "table" and rawlen(stride) == 0)
  local by = sizes_of(has_stride and stride or kernel, n, "the stride", 1)
  local pad, shape = sizes_of(padding, n, "the padding", 0, 0), table.move(s, 1, #s, 1, {})
  for i = 1, n do
    if 2 * pad[i] > kernel[i] then misfit("the padding is at most half of the kernel") end
    local d = #s - n + i
    shape[d] = windows(x, s[d], kernel[i], by[i], pad[i], pad[i], 1, true_or_false(ceil_mode, "ceil_mode"))
  end
  return kernel, by, pad, shape
end

-- max_pool1d, max_pool2d(x, kernel_size, stride, padding): the default stride is the kernel's size.
for n = 1, 2 do
  --- F.max_pool1d(input, kernel_size, stride?, padding = 0, dilation = 1, ceil_mode = false): the largest element of
  --- each window; the default of `stride` is `kernel_size`.
  --- F.max_pool2d(input, kernel_size, stride?, padding = 0, dilation = 1, ceil_mode = false): likewise.
  method("max_pool" .. n .. "d", function(input, kernel_size, stride, padding, dilation, ceil_mode,
      return_indices)
    for _, d in ipairs(sizes_of(dilation, n, "the dilation", 1, 1)) do
      if d ~= 1 then misfit("a dilation of windows is not taken: it must be 1") end
    end
    local kernel, by, pad, shape = pooled(input, kernel_size, stride, padding, ceil_mode, n)
    kernel, by, pad = as_image_sizes(kernel, 1), as_image_sizes(by, 1), as_image_sizes(pad, 0)
    local whole = table.move(shape, 1, #shape, 1, {})
    if n == 1 then table.insert(whole, #whole, 1) end
    local y = append("max_pool2d", {as_image(input, n)}, {kernel_y = kernel[1], kernel_x = kernel[2],
      stride_y = by[1], stride_x = by[2], pad_y = pad[1], pad_x = pad[2], shapes = {whole}})
    return base.narrowed(view(y, shape), input)
  end)
end

-- The mean of adjacent windows that fill dimension d: its elements in blocks.
local function mean_of_blocks(x, d, size)
  local shape = core.shape(x)
  if size == 1 then return x end
  local split = {}
  for i, n in ipairs(shape) do
    if i == d + 1 then split[#split + 1], n = n // size, size end
    split[#split + 1] = n
  end
  return base.reduced("sum", view(x, split), {d + 1}, false, 1 / size)
end

-- Products with a matrix [to, from] along dimension d, which is then `to` long.
local function product_along(x, d, matrix)
  local letters = string.sub("abcdefgh", 1, #core.shape(x))
  local own = string.sub(letters, d + 1, d + 1)
  local out = string.sub(letters, 1, d) .. "n" .. string.sub(letters, d + 2)
  return base.product(x, matrix, string.format("%s,n%s->%s", letters, own, out))
end

base.product_along = product_along

-- Column [n, 1] and row [m] of the integers from 0 on, in float32.
local function places(n) return raw.to(base.index_row(n), "float32") end
local function column(x) return view(x, {core.shape(x)[1], 1}) end

-- The mean over windows with zeros around them: a product with a matrix of weights. The count of a
-- window's elements is PyTorch's: those of x and, if count_include_pad, of the padding too, but
-- none beyond it.
local function mean_of_windows(x, d, kernel, stride, pad, to, count_include_pad, divisor)
  local from = core.shape(x)[d + 1]
  local first = raw.sub(raw.mul(base.index_row(to), stride), pad)
  local stop = raw.minimum(raw.add(first, kernel), from + pad)
  local own = raw.minimum(stop, from)
  local count = count_include_pad and raw.sub(stop, first) or raw.sub(own, raw.maximum(first, 0))
  local i = base.index_row(from)
  local inside = raw.logical_and(raw.ge(i, column(first)), raw.lt(i, column(own)))
  local share = divisor and raw.full({1, 1}, 1 / divisor) or raw.div(1.0, column(raw.to(count, "float32")))
  return product_along(x, d, raw.to(raw.where(inside, share, 0.0), core.type(x)))
end

-- avg_pool1d, avg_pool2d(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
local function avg_pool(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor, n)
  if true_or_false(count_include_pad, "count_include_pad") == nil then count_include_pad = true end
  if divisor ~= nil then base.whole(divisor, "divisor_override", 1) end
  local kernel, by, pad, shape = pooled(x, kernel_size, stride, padding, ceil_mode, n)
  for i = 1, n do
    local d = #shape - n + i - 1
    local from, to = core.shape(x)[d + 1], shape[d + 1]
    local side_by_side = pad[i] == 0 and by[i] == kernel[i] and to * kernel[i] <= from
    if side_by_side then
      x = mean_of_blocks(base.narrow(x, d, 0, to * kernel[i]), d, kernel[i])
      if divisor then x = raw.mul(x, kernel[i]) end
    else
      x = mean_of_windows(x, d, kernel[i], by[i], pad[i], to, count_include_pad, divisor and 1)
    end
  end
  return divisor and raw.div(x, divisor) or x
end
--- F.avg_pool1d(input, kernel_size, stride?, padding = 0, ceil_mode = false, count_include_pad = true): the mean of
--- each window.
method("avg_pool1d", function(input, kernel_size, stride, padding, ceil_mode, count_include_pad)
  return avg_pool(input, kernel_size, stride, padding, ceil_mode, count_include_pad, nil, 1)
end)
--- F.avg_pool2d(input, kernel_size, stride?, padding = 0, ceil_mode = false, count_include_pad = true,
--- divisor_override?): likewise.
method("avg_pool2d", function(input, kernel_size, stride, padding, ceil_mode, count_include_pad,
    divisor_override)
  return avg_pool(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, 2)
end)

-- `to` means along dimension d, of windows that overlap if `to` does not divide it.
local function adaptive_mean(x, d, to)
  local from = core.shape(x)[d + 1]
  if from % to == 0 then return mean_of_blocks(x, d, from // to) end
  -- Window o begins at o from / to, rounded down, and ends at (o + 1) from / to, rounded up.
  local o, i = column(base.index_row(to)), base.index_row(from)
  local begun = raw.gt(raw.mul(raw.add(i, 1), to), raw.mul(o, from))
  local inside = raw.logical_and(begun, raw.lt(raw.mul(i, to), raw.mul(raw.add(o, 1), from)))
  local count = raw.sum(raw.to(inside, "float32"), 1, true)
  return product_along(x, d, raw.to(raw.div(raw.to(inside, "float32"), count), core.type(x)))
end

-- adaptive_avg_pool1d, adaptive_avg_pool2d(x, output_size): nil keeps a dimension's size.
for n = 1, 2 do
  --- F.adaptive_avg_pool1d(input, output_size): means of so many windows.
  --- F.adaptive_avg_pool2d(input, output_size): likewise, of a number or `{y, x}`.
  method("adaptive_avg_pool" .. n .. "d", function(input, output_size)
    local x, sizes = base.need_floating(input), output_size
    if #core.shape(x) <= n then misfit("it takes images, not the shape %s", shape_text(core.shape(x))) end
    if base.kind(sizes) ~= "table" then sizes = {sizes, sizes} end
    for i = 1, n do
      local d, to = #core.shape(x) - n + i - 1, rawget(sizes, i)
      if to ~= nil and to ~= false then x = adaptive_mean(x, d, base.whole(to, "output_size", 1, MOST)) end
    end
    return x
  end)
end

-- ------------------------------------------------------------------------- transposed convolutions

-- The gradient of a convolution by its input, as an operator of its own: x [n, in, ...], weight
-- [in, out / groups, ...].
local function transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, n)
  groups = groups == nil and 1 or base.whole(groups, "groups", 1, MOST)
  local alone = #core.shape(input) == n + 1
  local x = alone and raw.unsqueeze(input, 0) or input
  base.need_floating(base.tensor(weight, "the weight"))
  local s, t = core.shape(base.need_floating(x)), core.shape(weight)
  if #s ~= n + 2 or #t ~= n + 2 or s[2] ~= t[1] or s[2] % groups ~= 0 then
    misfit("images %s do not fit weights %s, [in, out / groups, ...], in %d groups", shape_text(s),
      shape_text(t), groups)
  end
  stride, dilation = sizes_of(stride, n, "the stride", 1, 1), sizes_of(dilation, n, "the dilation", 1, 1)
  local pad, more = sizes_of(padding, n, "the padding", 0, 0), sizes_of(output_padding, n, "output_padding", 0, 0)
  local shape = {s[1], t[2] * groups}
  for i = 1, n do
    if more[i] >= stride[i] and more[i] >= dilation[i] then
      misfit("output_padding must be less than the stride or the dilation, not %d", more[i])
    end
    shape[i + 2] = (s[i + 2] - 1) * stride[i] - 2 * pad[i] + dilation[i] * (t[i + 2] - 1) + more[i] + 1
    if shape[i + 2] < 1 then misfit("nothing is left of the shape %s", shape_text(s)) end
  end
  stride, dilation, pad = as_image_sizes(stride, 1), as_image_sizes(dilation, 1), as_image_sizes(pad, 0)
  local y = append("conv2d_back_input", {as_image(x, n), as_image(weight, n)}, {stride_y = stride[1],
    stride_x = stride[2], pad_y = pad[1], pad_x = pad[2], dilation_y = dilation[1], dilation_x = dilation[2],
    shapes = {n == 2 and shape or {shape[1], shape[2], 1, shape[3]}}})
  y = with_bias(n == 1 and view(y, shape) or y, input, bias, weight, shape[2])
  return alone and raw.squeeze(y, 0) or y
end

-- conv_transpose1d, conv_transpose2d(x, weight, bias, stride, padding, output_padding, groups, dilation)
for n = 1, 2 do
  --- F.conv_transpose1d(input, weight, bias?, stride = 1, padding = 0, output_padding = 0, groups = 1, dilation = 1):
  --- the transposed convolution.
  --- F.conv_transpose2d(input, weight, bias?, stride = 1, padding = 0, output_padding = 0, groups = 1, dilation = 1):
  --- likewise.
  method("conv_transpose" .. n .. "d", function(input, weight, bias, stride, padding, output_padding, groups,
      dilation)
    return transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, n)
  end)
end

-- ---------------------------------------------------------------------------------- interpolation

-- The position of each of `to` elements among those of x, in float32; they are `scale` apart.
local function sources(to, scale, align_corners)
  if align_corners then return raw.mul(places(to), scale) end
  return raw.maximum(raw.sub(raw.mul(raw.add(places(to), 0.5), scale), 0.5), 0.0)
end

local function chosen(x, d, index) return append("index_select", {x, index}, {dims = {d}}) end

local function nearest(x, d, to, scale)
  local from = core.shape(x)[d + 1]
  if to % from == 0 and scale * to == from then return raw.repeat_interleave(x, to // from, d) end
  local index = raw.minimum(raw.to(raw.mul(places(to), scale), "int32"), from - 1)
  return chosen(x, d, index)
end

local function linear(x, d, to, scale, align_corners)
  local from = core.shape(x)[d + 1]
  if align_corners then scale = to > 1 and (from - 1) / (to - 1) or 0 end
  local at = sources(to, scale, align_corners)
  local first = raw.minimum(raw.to(at, "int32"), from - 1)
  local second = raw.minimum(raw.add(first, 1), from - 1)
  local across = {to}
  for _ = d + 2, #core.shape(x) do across[#across + 1] = 1 end
  local share = view(raw.sub(at, raw.to(first, "float32")), across)
  local y = raw.mul(base.wide(chosen(x, d, first)), raw.sub(1, share))
  return base.narrowed(raw.add(y, raw.mul(base.wide(chosen(x, d, second)), share)), x)
end

-- The convolution kernel of cubic interpolation, of distances below 1 and from 1 to 2; a: its slope at 1.
local CUBIC = -0.75
local function near_weight(t, a)
  return raw.add(raw.mul(raw.mul(raw.sub(raw.mul(t, a + 2), a + 3), t), t), 1)
end
local function far_weight(t, a)
  return raw.sub(raw.mul(raw.add(raw.mul(raw.sub(raw.mul(t, a), 5 * a), t), 8 * a), t), 4 * a)
end
base.cubic_weights = {near_weight, far_weight}

-- Four elements around each place; those beyond the border are those at it.
local function cubic(x, d, to, scale, align_corners)
  local from = core.shape(x)[d + 1]
  if align_corners then scale = to > 1 and (from - 1) / (to - 1) or 0 end
  local at = align_corners and raw.mul(places(to), scale)
    or raw.sub(raw.mul(raw.add(places(to), 0.5), scale), 0.5)
  local first = raw.sub(raw.to(at, "int32"), raw.to(raw.lt(at, 0.0), "int32"))
  local t = raw.sub(at, raw.to(first, "float32"))
  local rest = raw.sub(1.0, t)
  local weights = {far_weight(raw.add(t, 1), CUBIC), near_weight(t, CUBIC), near_weight(rest, CUBIC),
    far_weight(raw.add(rest, 1), CUBIC)}
  local across, sum = {to}, nil
  for _ = d + 2, #core.shape(x) do across[#across + 1] = 1 end
  for i, weight in ipairs(weights) do
    local index = raw.minimum(raw.maximum(raw.add(first, i - 2), 0), from - 1)
    local term = raw.mul(base.wide(chosen(x, d, index)), view(weight, across))
    sum = sum and raw.add(sum, term) or term
  end
  return base.narrowed(sum, x)
end

local LINEAR = {"linear", "bilinear", "trilinear"}

-- Images [n, channels, ...] with these sizes; scales[i]: how much larger dimension i becomes, where that is not
-- the quotient of the sizes.
function base.resample(x, sizes, scales, mode, align_corners)
  for i, to in ipairs(sizes) do
    local d, from = i + 1, core.shape(x)[i + 2]
    local factor = scales and rawget(scales, i)
    local scale = factor and 1 / factor or from / to
    if mode == "area" then
      x = adaptive_mean(x, d, to)
    elseif mode == "nearest" then
      x = nearest(x, d, to, scale)
    elseif mode == "nearest-exact" then
      local index = raw.to(raw.mul(raw.add(places(to), 0.5), scale), "int32")
      x = chosen(x, d, raw.minimum(index, from - 1))
    else
      x = (mode == "bicubic" and cubic or linear)(x, d, to, scale, align_corners)
    end
  end
  return x
end

--- F.interpolate(input, size?, scale_factor?, mode = "nearest", align_corners?, recompute_scale_factor?): `[n,
--- channels, ...]` of one to three further dimensions in other sizes; the modes are nearest, nearest-exact, area,
--- linear, bilinear, trilinear, bicubic.
method("interpolate", function(input, size, scale_factor, mode, align_corners, recompute_scale_factor,
    antialias)
  local x, shape = base.need_floating(input), core.shape(input)
  local n = #shape - 2
  if n < 1 or n > 3 then misfit("it takes images [n, channels, y, x], not the shape %s", shape_text(shape)) end
  mode = mode == nil and "nearest" or mode
  local modes = {nearest = true, ["nearest-exact"] = true, area = true, bicubic = n == 2, [LINEAR[n]] = true}
  if not modes[mode] then
    misfit('the mode is "nearest", "nearest-exact", "area"%s or "%s", not %s', n == 2 and ', "bicubic"' or "",
      LINEAR[n], base.a(mode))
  end
  if align_corners ~= nil and mode ~= LINEAR[n] and mode ~= "bicubic" then
    misfit("align_corners goes with linear, bilinear, trilinear and bicubic")
  end
  true_or_false(align_corners, "align_corners")
  true_or_false(recompute_scale_factor, "recompute_scale_factor")
  if (size == nil) == (scale_factor == nil) then misfit("say size or scale_factor, not both") end
  local sizes, scales = size ~= nil and sizes_of(size, n, "the size", 1) or {}, {}
  if recompute_scale_factor and size ~= nil then misfit("recompute_scale_factor goes with scale_factor") end
  for i = 1, size == nil and n or 0 do
    local factor = scale_factor
    if base.kind(factor) == "table" then factor = rawget(factor, i) end
    if base.number_or(factor, 0, "scale_factor") <= 0 then misfit("scale_factor must be above 0") end
    sizes[i] = math.tointeger(math.floor(shape[i + 2] * factor))
    if sizes[i] < 1 then misfit("nothing is left of the shape %s", shape_text(shape)) end
    scales[i] = not recompute_scale_factor and factor
  end
  return base.resample(x, sizes, scales, mode, align_corners)
end)
