-- torch_layers.lua: functions of torch.nn.functional that are compositions: activations, dropout of channels, windows, pools,
-- sampled images, bags of rows, losses.
local core, base = ...
local raw, method, define = base.raw, base.method, base.define
local misfit, tensor, view = base.misfit, base.tensor, base.view
local operator, need = base.operator_of_torch, base.needed

-- A number for n dimensions, or a list of one for each.
local function each(v, n, otherwise, what, least)
  if v == nil or otherwise ~= nil and base.kind(v) == "table" and #v == 0 then v = otherwise end
  if base.kind(v) ~= "table" then v = {v} end
  local given, list = base.list(v, what), {}
  if given ~= 1 and given ~= n then misfit("%s is a number, or a list of %d, not of %d", what, n, given) end
  for i = 1, n do list[i] = base.whole(rawget(v, given == 1 and 1 or i), what, least or 0, 1 << 20) end
  return list
end

local function takes_dimensions(x, ...)
  local dims, allowed = #core.shape(x), {...}
  for _, n in ipairs(allowed) do
    if dims == n then return end
  end
  misfit("it takes %s dimensions, not the shape %s", table.concat(allowed, " or "), base.shape_text(core.shape(x)))
end

-- -------------------------------------------------------------------------------------- activations

--- # Activations
--- F.hardshrink(input, lambd = 0.5): 0 where its size is at most `lambd`.
--- F.softshrink(input, lambd = 0.5): nearer to 0 by `lambd`.
for _, name in ipairs{"hardshrink", "softshrink"} do
  method(name, function(input, lambd) return operator(name, {self = input, lambd = lambd}) end)
end
--- F.threshold(input, threshold, value): `value` where it is not above `threshold`.
define("threshold", function(input, threshold, value, inplace)
  return operator("threshold", {self = input, threshold = need(threshold, "the threshold"), value = need(value, "the value")})
end)
--- F.softmin(input, dim, dtype?): the softmax of the negative.
define("softmin", function(input, dim, _stacklevel, dtype)
  return raw.softmax(raw.neg(input), need(dim, "dim"), nil, dtype)
end)
--- F.gumbel_softmax(logits, tau = 1, hard = false, eps = 1e-10, dim = -1): a sample of categories; `hard`: as one-hot rows, whose gradient is
--- that of the soft ones.
define("gumbel_softmax", function(logits, tau, hard, eps, dim)
  if dim == nil then dim = -1 end
  local shares = raw.clamp(raw.rand_like(logits), 2^-33, 1 - 2^-24)
  local noise = raw.neg(raw.log(raw.neg(raw.log(shares))))
  local soft = raw.softmax(raw.div(raw.add(logits, noise), tau == nil and 1 or tau), dim)
  if not hard then return soft end
  local d = base.dimension(core.shape(soft), dim)
  local index = raw.unsqueeze(raw.argmax(raw.detach(soft), d), -1)
  local row = raw.arange(core.shape(soft)[d + 1])
  local one = raw.to(raw.eq(index, row), core.type(soft))
  if d < #core.shape(soft) - 1 then one = operator("movedim", {self = one, source = -1, destination = d}) end
  return raw.add(raw.sub(one, raw.detach(soft)), soft)
end)

-- What dropout leaves of the first so many dimensions, as 0 or 1 / (1 - p).
local function kept(x, dims, p, training)
  local sizes = core.shape(x)
  for i = dims + 1, #sizes do sizes[i] = 1 end
  return raw.dropout(raw.full(sizes, 1, "float32"), p, training)
end
--- F.dropout1d(input, p = 0.5, training = true): dropout of whole channels.
--- F.dropout2d(input, p = 0.5, training = true): likewise.
--- F.dropout3d(input, p = 0.5, training = true): likewise.
for n = 1, 3 do
  define("dropout" .. n .. "d", function(input, p, training, inplace)
    takes_dimensions(input, n + 2)
    if training == false or not base.training then return input end
    return raw.mul(input, raw.to(kept(input, 2, p, training), core.type(input)))
  end)
end
--- F.alpha_dropout(input, p = 0.5, training = false): dropout that keeps the mean and deviation of what `selu` gives.
--- F.feature_alpha_dropout(input, p = 0.5, training = false): likewise, of whole channels.
for name, whole in pairs{alpha_dropout = false, feature_alpha_dropout = true} do
  define(name, function(input, p, training, inplace)
    p = p == 1 and 1 or base.number(p == nil and 0.5 or p, "p", 0, 1)
    if not training or not base.training or p == 0 then return input end
    if p == 1 then return raw.mul(input, 0) end
    local left = kept(input, whole and 2 or #core.shape(input), p, true)
    local low, share = -1.7580993408473766, raw.mul(left, 1 - p)
    local a = 1 / math.sqrt((1 - p) * (1 + p * low^2))
    return raw.add(raw.mul(raw.add(raw.mul(input, share), raw.mul(low, raw.sub(1, share))), a), -a * low * p)
  end)
end
--- F.local_response_norm(input, size, alpha = 0.0001, beta = 0.75, k = 1): by the squares of `size` neighbouring channels.
define("local_response_norm", function(input, size, alpha, beta, k)
  size = base.whole(size, "the size", 1, 1 << 20)
  local shape = core.shape(input)
  if #shape < 3 then misfit("it takes three dimensions and more, not the shape %s", base.shape_text(shape)) end
  local flat = view(raw.square(input), {shape[1], 1, shape[2], base.elements(shape) // (shape[1] * shape[2])})
  local means = raw.avg_pool2d(raw.pad(flat, {0, 0, size // 2, (size - 1) // 2}), {size, 1}, 1)
  return raw.div(input, raw.pow(raw.add(raw.mul(view(means, shape), alpha == nil and 1e-4 or alpha), k == nil and 1 or k),
    beta == nil and 0.75 or beta))
end)

-- ------------------------------------------------------------------------------------------- images

--- # Images
--- F.channel_shuffle(input, groups): channels of groups, in turn.
define("channel_shuffle", function(input, groups)
  return operator("channel_shuffle", {self = input, groups = base.whole(groups, "the groups", 1)})
end)
--- F.unfold(input, kernel_size, dilation = 1, padding = 0, stride = 1): the windows of images, `[n, c kernel, windows]`.
define("unfold", function(input, kernel_size, dilation, padding, stride)
  takes_dimensions(input, 4)
  return operator("im2col", {self = input, kernel_size = each(kernel_size, 2, nil, "the kernel", 1),
    dilation = each(dilation, 2, 1, "the dilation", 1), padding = each(padding, 2, 0, "the padding"),
    stride = each(stride, 2, 1, "the stride", 1)})
end)
--- F.fold(input, output_size, kernel_size, dilation = 1, padding = 0, stride = 1): windows added up to images.
define("fold", function(input, output_size, kernel_size, dilation, padding, stride)
  takes_dimensions(input, 3)
  return operator("col2im", {self = input, output_size = each(output_size, 2, nil, "the output_size", 1),
    kernel_size = each(kernel_size, 2, nil, "the kernel", 1), dilation = each(dilation, 2, 1, "the dilation", 1),
    padding = each(padding, 2, 0, "the padding"), stride = each(stride, 2, 1, "the stride", 1)})
end)
--- F.max_pool3d(input, kernel_size, stride?, padding = 0, dilation = 1, ceil_mode = false): of `[n, c, z, y, x]`.
define("max_pool3d", function(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
  takes_dimensions(input, 5)
  local kernel = each(kernel_size, 3, nil, "the kernel", 1)
  return operator("max_pool3d", {self = input, kernel_size = kernel, stride = each(stride, 3, kernel, "the stride", 1),
    padding = each(padding, 3, 0, "the padding"), dilation = each(dilation, 3, 1, "the dilation", 1), ceil_mode = ceil_mode})
end)
--- F.avg_pool3d(input, kernel_size, stride?, padding = 0, ceil_mode = false, count_include_pad = true, divisor_override?):
--- likewise; with no `divisor_override`.
define("avg_pool3d", function(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
  if divisor_override ~= nil then misfit("it does not take 'divisor_override'") end
  takes_dimensions(input, 5)
  local kernel = each(kernel_size, 3, nil, "the kernel", 1)
  return operator("avg_pool3d", {self = input, kernel_size = kernel, stride = each(stride, 3, kernel, "the stride", 1),
    padding = each(padding, 3, 0, "the padding"), ceil_mode = ceil_mode, count_include_pad = count_include_pad})
end)
--- F.adaptive_avg_pool3d(input, output_size): means of so many parts.
define("adaptive_avg_pool3d", function(input, output_size)
  takes_dimensions(input, 5)
  return operator("adaptive_avg_pool3d", {self = input, output_size = each(output_size, 3, nil, "the output_size", 1)})
end)
--- F.adaptive_max_pool1d(input, output_size): the largest of so many parts.
--- F.adaptive_max_pool2d(input, output_size): likewise.
for n = 1, 2 do
  define("adaptive_max_pool" .. n .. "d", function(input, output_size, return_indices)
    takes_dimensions(input, n + 2)
    return (operator("adaptive_max_pool" .. n .. "d", {self = input, output_size = each(output_size, n, nil, "the output_size", 1)}))
  end)
end
--- F.lp_pool1d(input, norm_type, kernel_size, stride?, ceil_mode = false): norms of windows.
--- F.lp_pool2d(input, norm_type, kernel_size, stride?, ceil_mode = false): likewise.
for n = 1, 2 do
  define("lp_pool" .. n .. "d", function(input, norm_type, kernel_size, stride, ceil_mode)
    local p, kernel = base.number(norm_type, "the norm_type", 1e-6, 1e6), each(kernel_size, n, nil, "the kernel", 1)
    local means = raw["avg_pool" .. n .. "d"](raw.pow(input, p), kernel, each(stride, n, kernel, "the stride", 1), 0, ceil_mode)
    return raw.pow(raw.mul(means, kernel[1] * (kernel[2] or 1)), 1 / p)
  end)
end
local SAMPLING = {bilinear = 0, nearest = 1}
local BORDERS = {zeros = 0, border = 1, reflection = 2}
--- F.grid_sample(input, grid, mode = "bilinear", padding_mode = "zeros", align_corners = false): images, or volumes, at places between
--- -1 and 1; `"nearest"`; `"border"`, `"reflection"`.
define("grid_sample", function(input, grid, mode, padding_mode, align_corners)
  local how, border = SAMPLING[mode == nil and "bilinear" or mode], BORDERS[padding_mode == nil and "zeros" or padding_mode]
  if not how then misfit('its mode is "bilinear" or "nearest", not %s', base.a(mode)) end
  if not border then misfit('its padding_mode is "zeros", "border" or "reflection", not %s', base.a(padding_mode)) end
  return operator("grid_sampler", {input = input, grid = tensor(grid, "the grid"), interpolation_mode = how, padding_mode = border,
    align_corners = align_corners or false})
end)
--- F.affine_grid(theta, size, align_corners = false): the places of pixels under affine maps, for `F.grid_sample`.
define("affine_grid", function(theta, size, align_corners)
  return operator("affine_grid_generator", {theta = theta, size = base.integers("size", size), align_corners = align_corners or false})
end)

-- -------------------------------------------------------------------------------- products, and rows

--- # Sums and products
--- F.bilinear(input1, input2, weight, bias?): of each output a form of two inputs.
define("bilinear", function(input1, input2, weight, bias)
  return operator("bilinear", {input1 = input1, input2 = tensor(input2, "input2"), weight = tensor(weight, "the weight"),
    bias = bias})
end)
--- F.pdist(input, p = 2): the distances of all pairs of rows.
define("pdist", function(input, p) return operator("pdist", {self = input, p = p}) end)

--- # Indices
--- F.embedding_bag(input, weight, offsets?, norm_type = 2, mode = "mean", per_sample_weights?, include_last_offset = false,
--- padding_idx?): sums, means or maxima (`"sum"`, `"max"`) of the rows of each bag, `[bags, rows]`, but for those of `padding_idx`;
--- with no `offsets` and `include_last_offset`.
define("embedding_bag", function(input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse,
    per_sample_weights, include_last_offset, padding_idx)
  for name, v in pairs{offsets = offsets or false, include_last_offset = include_last_offset or false} do
    if v then misfit("it does not take '%s': bags are the rows of the input", name) end
  end
  takes_dimensions(input, 2)
  local rows = raw.embedding(input, tensor(weight, "the weight"))
  mode = mode == nil and "mean" or mode
  local counts -- of each bag's elements, or nil: all
  if padding_idx ~= nil then
    local size = core.shape(weight)[1]
    padding_idx = base.whole(padding_idx, "padding_idx", -size, size - 1) % size
    counts = raw.ne(input, padding_idx)
    if mode == "max" then
      local none = raw.logical_not(raw.any(counts, 1, true))
      rows = raw.where(raw.unsqueeze(raw.logical_or(counts, none), -1), rows, -math.huge)
      return raw.where(none, 0.0, raw.amax(rows, 1))
    end
    rows = raw.where(raw.unsqueeze(counts, -1), rows, 0.0)
  end
  if per_sample_weights ~= nil then
    if mode ~= "sum" then misfit('per_sample_weights go with the mode "sum"') end
    rows = raw.mul(rows, raw.unsqueeze(tensor(per_sample_weights, "per_sample_weights"), -1))
  end
  if mode == "sum" then return raw.sum(rows, 1) end
  if mode == "mean" and counts then
    return raw.div(raw.sum(rows, 1), raw.clamp(raw.sum(raw.to(counts, core.type(rows)), 1, true), 1))
  end
  if mode == "mean" then return raw.mean(rows, 1) end
  if mode == "max" then return raw.amax(rows, 1) end
  misfit('its mode is "sum", "mean" or "max", not %s', base.a(mode))
end)

-- ------------------------------------------------------------------------------------------- losses

local REDUCTIONS = {none = 0, mean = 1, sum = 2}
local function reduced(size_average, reduce, reduction)
  if size_average ~= nil or reduce ~= nil then misfit("it does not take 'size_average' and 'reduce': give reduction") end
  return REDUCTIONS[reduction == nil and "mean" or reduction]
    or misfit('its reduction is "mean", "sum" or "none", not %s', base.a(reduction))
end
--- # Softmax, losses, norms
--- F.multi_margin_loss(input, target, p = 1, margin = 1, weight?, reduction = "mean"): how far other classes come near the target.
define("multi_margin_loss", function(input, target, p, margin, weight, size_average, reduce, reduction)
  return operator("multi_margin_loss", {self = input, target = tensor(target, "the target"), p = p, margin = margin, weight = weight,
    reduction = reduced(size_average, reduce, reduction)})
end)
--- F.multilabel_margin_loss(input, target, reduction = "mean"): likewise of several targets, which end with a -1.
define("multilabel_margin_loss", function(input, target, size_average, reduce, reduction)
  return operator("multilabel_margin_loss", {self = input, target = tensor(target, "the target"),
    reduction = reduced(size_average, reduce, reduction)})
end)
