-- volumes.lua: convolutions over three dimensions, and channels that become pixels.
local core, base = ...
local raw, method = base.raw, base.method
local misfit, shape_text, view = base.misfit, base.shape_text, base.view

-- A number for three dimensions, or a list of three.
local function three(v, otherwise, what, least)
  if v == nil then v = otherwise end
  if base.kind(v) ~= "table" then v = {v, v, v} end
  local n = base.list(v, what)
  if n ~= 1 and n ~= 3 then misfit("%s is a number, or a list of 3, not of %d", what, n) end
  local list = {}
  for i = 1, 3 do list[i] = base.whole(rawget(v, n == 1 and 1 or i), what, least, 1 << 20) end
  return list
end

--- # Images
--- F.conv3d(input, weight, bias?, stride = 1, padding = 0, dilation = 1, groups = 1): of `[batch, channels, z, y, x]`.
method("conv3d", function(input, weight, bias, stride, padding, dilation, groups)
  local alone = #core.shape(input) == 4
  local x, kernel = alone and raw.unsqueeze(input, 0) or input, core.shape(base.tensor(weight, "the weight"))
  if #core.shape(x) ~= 5 or #kernel ~= 5 then
    misfit("it takes volumes [n, channels, z, y, x] and weights [out, in, z, y, x], not the shapes %s and %s",
      shape_text(core.shape(input)), shape_text(kernel))
  end
  stride, dilation = three(stride, 1, "the stride", 1), three(dilation, 1, "the dilation", 1)
  local borders = {}
  if padding == "same" then
    for i = 1, 3 do
      if stride[i] ~= 1 then misfit('padding "same" goes with a stride of 1') end
      local all = dilation[i] * (kernel[i + 2] - 1)
      borders[#borders + 1], borders[#borders + 2] = all // 2, all - all // 2
    end
  else
    for i, p in ipairs(three(padding == "valid" and 0 or padding, 0, "the padding", 0)) do
      borders[2 * i - 1], borders[2 * i] = p, p
    end
  end
  local shape = core.shape(x)
  local depth = shape[3] + borders[1] + borders[2]
  local n = (depth - dilation[1] * (kernel[3] - 1) - 1) // stride[1] + 1
  if n < 1 then misfit("a window of %d does not fit the shape %s", dilation[1] * (kernel[3] - 1) + 1, shape_text(shape)) end
  x = raw.pad(x, {borders[5], borders[6], borders[3], borders[4], borders[1], borders[2]})
  shape = core.shape(x)
  -- Each plane of the kernel is a convolution over two dimensions, of the planes that it meets.
  local sum
  for i = 0, kernel[3] - 1 do
    local first = i * dilation[1]
    local planes = raw.slice(x, 2, first, first + (n - 1) * stride[1] + 1, stride[1])
    local y = raw.conv2d(view(raw.transpose(planes, 1, 2), {shape[1] * n, shape[2], shape[4], shape[5]}),
      raw.select(weight, 2, i), i == 0 and bias or nil, {stride[2], stride[3]}, 0, {dilation[2], dilation[3]}, groups)
    sum = sum and raw.add(sum, y) or y
  end
  local t = core.shape(sum)
  local y = raw.transpose(view(sum, {shape[1], n, t[2], t[3], t[4]}), 1, 2)
  return alone and raw.squeeze(y, 0) or y
end)

--- F.conv_transpose3d(input, weight, bias?, stride = 1, padding = 0, output_padding = 0, groups = 1, dilation = 1): of
--- weights `[in, out / groups, kz, ky, kx]`.
method("conv_transpose3d", function(input, weight, bias, stride, padding, output_padding, groups, dilation)
  local alone = #core.shape(input) == 4
  local x, kernel = alone and raw.unsqueeze(input, 0) or input, core.shape(base.tensor(weight, "the weight"))
  local shape = core.shape(x)
  if #shape ~= 5 or #kernel ~= 5 then
    misfit("it takes volumes [n, channels, z, y, x] and weights [in, out, z, y, x], not the shapes %s and %s",
      shape_text(core.shape(input)), shape_text(kernel))
  end
  stride, dilation = three(stride, 1, "the stride", 1), three(dilation, 1, "the dilation", 1)
  padding, output_padding = three(padding, 0, "the padding", 0), three(output_padding, 0, "the output_padding", 0)
  local apart = (shape[3] - 1) * stride[1] + 1 -- the planes of one plane of the kernel
  local depth = apart + dilation[1] * (kernel[3] - 1) + output_padding[1] - 2 * padding[1]
  if depth < 1 then misfit("a padding of %d leaves nothing of the shape %s", padding[1], shape_text(shape)) end
  if output_padding[1] >= math.max(stride[1], dilation[1]) then misfit("the output_padding must be below the stride or the dilation") end
  local planes = view(raw.transpose(x, 1, 2), {shape[1] * shape[3], shape[2], shape[4], shape[5]})
  local sum
  for i = 0, kernel[3] - 1 do
    local y = raw.conv_transpose2d(planes, raw.select(weight, 2, i), nil, {stride[2], stride[3]}, {padding[2], padding[3]},
      {output_padding[2], output_padding[3]}, groups, {dilation[2], dilation[3]})
    local t = core.shape(y)
    y = raw.transpose(view(y, {shape[1], shape[3], t[2], t[3], t[4]}), 1, 2)
    if stride[1] > 1 and shape[3] > 1 then y = core.append("spread", {y}, {dims = {2}, step = stride[1], sizes = {E = apart}}) end
    local before = i * dilation[1] - padding[1]
    local first, last = math.max(-before, 0), math.min(apart, depth - before)
    if last > first then
      before = math.max(before, 0)
      y = raw.pad(raw.narrow(y, 2, first, last - first), {0, 0, 0, 0, before, depth - before - (last - first)})
      sum = sum and raw.add(sum, y) or y
    end
  end
  if not sum then misfit("a padding of %d leaves nothing of the shape %s", padding[1], shape_text(shape)) end
  if bias ~= nil then sum = raw.add(sum, view(base.tensor(bias, "the bias"), {core.shape(bias)[1], 1, 1, 1})) end
  return alone and raw.squeeze(sum, 0) or sum
end)

-- Sizes [..., c, y, x] as {n, c, y, x}, all further dimensions in one; and the number of further ones.
local function image_sizes(x)
  local shape = core.shape(x)
  if #shape < 3 then misfit("it takes [..., channels, y, x], not the shape %s", shape_text(shape)) end
  local first = table.move(shape, 1, #shape - 3, 1, {})
  return first, shape[#shape - 2], shape[#shape - 1], shape[#shape]
end
local function joined(first, ...) return table.move({...}, 1, select("#", ...), #first + 1, table.move(first, 1, #first, 1, {})) end

--- F.pixel_shuffle(input, upscale_factor): `[..., c r^2, y, x]` as `[..., c, y r, x r]`.
method("pixel_shuffle", function(input, upscale_factor)
  local r = base.whole(upscale_factor, "upscale_factor", 1, 1 << 15)
  local first, channels, y, x = image_sizes(input)
  if channels % (r * r) ~= 0 then misfit("%d channels are no multiple of %d", channels, r * r) end
  local c, n = channels // (r * r), base.elements(first)
  local z = raw.permute(view(input, {n, c, r, r, y, x}), {0, 1, 4, 2, 5, 3})
  return view(z, joined(first, c, y * r, x * r))
end)
--- F.pixel_unshuffle(input, downscale_factor): the way back.
method("pixel_unshuffle", function(input, downscale_factor)
  local r = base.whole(downscale_factor, "downscale_factor", 1, 1 << 15)
  local first, c, y, x = image_sizes(input)
  if y % r ~= 0 or x % r ~= 0 then misfit("images of %d x %d are no multiple of %d", y, x, r) end
  local n = base.elements(first)
  local z = raw.permute(view(input, {n, c, y // r, r, x // r, r}), {0, 1, 3, 5, 2, 4})
  return view(z, joined(first, c * r * r, y // r, x // r))
end)
