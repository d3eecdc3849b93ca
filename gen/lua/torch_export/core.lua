-- core.lua: more operators of exported programs: those of core ATen that are compositions of
-- others, and those whose arguments have to be looked at.
local core, base = ...
local raw, constants, fail, torch = base.raw, base.constants, base.fail, base.torch
local operators, on_constants = base.torch_operators, base.torch_on_constants
local calls, is_tensor = torch.calls, core.is_tensor

local FLOATS = {float32 = true, bfloat16 = true}

local function type_of(x) return constants.is(x) and x.type or core.type(x) end
local function is_float(x) return FLOATS[core.type(x)] or false end
local function floats(x) return is_float(x) and x or raw.to(x, "float32") end
local function plain_tensor(v) return constants.is(v) and constants.tensor(v) or v end
torch.floats, torch.plain_tensor = floats, plain_tensor

-- f of the tensor as floats, in the tensor's own type.
local function through_floats(x, f)
  if is_float(x) then return f(x) end
  return raw.to(f(raw.to(x, "float32")), core.type(x))
end

-- A number that is put among whole numbers is one.
function torch.value_for(x, value)
  if value == nil or is_float(x) or math.type(value) == "integer" then return value end
  return math.tointeger(value < 0 and math.ceil(value) or math.floor(value)) or fail("%s among whole numbers is not supported", value)
end

-- Float32 is exact for whole numbers up to 2^24. Casts and counts of bools are within that.
local is_small = setmetatable({}, {__mode = "k"})
function torch.note_small(x) is_small[x] = true; return x end
local function holds_large(x) return not is_float(x) and core.type(x) ~= "bool" and not is_small[x] end

-- Whole numbers as parts of `bits` bits each, the lowest one first; the last one has the sign.
local function parts_of(x, bits)
  local list, left = {}, core.type(x) == "int32" and 32 or 64
  while left > bits do
    list[#list + 1] = raw.remainder(x, 1 << bits)
    x, left = raw.floor_divide(x, 1 << bits), left - bits
  end
  list[#list + 1] = x
  return list
end

-- The bits of a part, so that the sum of all elements' parts is exact in float32.
local function bits_of_sums(x)
  local n, bits = base.elements(core.shape(x)) + 1, 22
  while bits > 4 and n << bits > 1 << 24 do bits = bits - 1 end
  if n << bits > 1 << 24 then fail("a sum by indices of so many whole numbers is not supported") end
  return bits
end

-- f of whole numbers, part by part as floats. f moves numbers from place to place, or adds some of them: `bits` says how
-- large parts may be.
local function by_parts(x, y, bits, f)
  local xs, ys, whole = parts_of(x, bits), parts_of(raw.to(y, core.type(x)), bits), nil
  for i = #xs, 1, -1 do
    local part = raw.to(f(raw.to(xs[i], "float32"), raw.to(ys[i], "float32")), core.type(x))
    whole = whole and raw.add(raw.mul(whole, 1 << bits), part) or part
  end
  return whole
end

-- Up to each element along a dimension, by an operator of two whole numbers.
local function up_to_each(x, dim, f)
  if #core.shape(x) == 0 then return x end
  local d = base.dimension(core.shape(x), dim)
  local n, by = core.shape(x)[d + 1], 1
  while by < n do
    local y = f(raw.narrow(x, d, by, n - by), raw.narrow(x, d, 0, n - by))
    x, by = raw.cat({raw.narrow(x, d, 0, by), y}, d), 2 * by
  end
  return x
end

torch.up_to_each = up_to_each

-- The indices that sort whole numbers: by their lowest parts first, then by the next ones, where equal ones stay in order.
local function order_of_whole(x, d, descending)
  local order
  for _, part in ipairs(parts_of(x, 22)) do
    if order then part = raw.gather(part, d, order) end
    local next_order = raw.argsort(raw.to(part, "float32"), d, descending)
    order = order and raw.gather(order, d, next_order) or next_order
  end
  return order
end

-- ------------------------------------------------------------------------------- element by element

for _, name in ipairs{"floor", "ceil", "trunc", "round", "frac"} do
  operators[name] = function(a)
    local x = a.self
    if not is_tensor(x) then -- a size
      if name == "round" or name == "frac" then fail("%s of a number is not supported", name) end
      return name == "floor" and math.floor(x) or name == "ceil" and math.ceil(x) or x < 0 and math.ceil(x) or math.floor(x)
    end
    return raw[name](x, a.decimals)
  end
end
operators.fix = operators.trunc

-- The quotient as the mode has it.
local function quotient(x, y, mode)
  if is_tensor(x) or is_tensor(y) then return base.rounded_quotient(x, y, mode) end
  return mode == "floor" and x // y or operators.trunc{self = x / y}
end

operators.div = function(a)
  if a.rounding_mode ~= nil then return quotient(a.self, a.other, a.rounding_mode) end
  if not is_tensor(a.self) and not is_tensor(a.other) then return a.self / a.other end
  return raw.div(torch.promoted(is_tensor(a.self) and floats(a.self) or a.self,
    is_tensor(a.other) and floats(a.other) or a.other))
end
operators.floor_divide = function(a) return quotient(a.self, a.other, "floor") end
operators.remainder, operators.fmod = calls("remainder", "self", "other"), calls("fmod", "self", "other")
operators.sign = calls("sign", "self")
operators.sgn = operators.sign
operators.log2 = function(a) return raw.mul(raw.log(a.self), 1 / math.log(2)) end
operators.log10 = function(a) return raw.mul(raw.log(a.self), 1 / math.log(10)) end
operators.exp2 = function(a) return raw.exp(raw.mul(a.self, math.log(2))) end
operators.tan = function(a) return raw.div(raw.sin(a.self), raw.cos(a.self)) end
operators.sinh = function(a) return raw.mul(0.5, raw.sub(raw.expm1(a.self), raw.expm1(raw.neg(a.self)))) end
operators.cosh = function(a) return raw.mul(0.5, raw.add(raw.exp(a.self), raw.exp(raw.neg(a.self)))) end
-- Of |x|, with the sign of x: for a negative x the sum would lose its digits.
operators.asinh = function(a)
  local below = raw.lt(a.self, 0)
  local x = raw.where(below, raw.neg(a.self), a.self)
  local y = raw.log(raw.add(x, raw.sqrt(raw.add(raw.square(x), 1))))
  return raw.where(below, raw.neg(y), y)
end
operators.acosh = function(a)
  return raw.log(raw.add(a.self, raw.sqrt(raw.sub(raw.square(a.self), 1))))
end
operators.atanh = function(a)
  return raw.mul(0.5, raw.sub(raw.log1p(a.self), raw.log1p(raw.neg(a.self))))
end
operators.erfc = function(a) return raw.sub(1, raw.erf(a.self)) end
operators.nan_to_num = function(a)
  local x = a.self
  local most = 3.4028234663852886e38
  x = raw.where(raw.ne(x, x), a.nan or 0.0, x)
  x = raw.where(raw.eq(x, math.huge), a.posinf or most, x)
  return raw.where(raw.eq(x, -math.huge), a.neginf or -most, x)
end
operators.elu = function(a)
  local x, scale, steep = a.self, a.scale or 1, a.input_scale or 1
  local below = raw.mul((a.alpha or 1) * scale, raw.expm1(raw.mul(raw.minimum(x, 0.0), steep)))
  return raw.where(raw.gt(x, 0), raw.mul(x, scale), below)
end
operators.celu, operators.selu = calls("celu", "self", "alpha"), calls("selu", "self")
operators.tanhshrink = calls("tanhshrink", "self")
operators.logaddexp = calls("logaddexp", "self", "other")
operators.addcmul = function(a) return raw.add(a.self, raw.mul(a.value or 1, raw.mul(a.tensor1, a.tensor2))) end
operators.addcdiv = function(a) return raw.add(a.self, raw.mul(a.value or 1, raw.div(a.tensor1, a.tensor2))) end
operators.lerp = function(a)
  return raw.add(a.self, raw.mul(raw.sub(a["end"], a.self), a.weight))
end

local function exclusive(x, y) return raw.ne(raw.to(x, "int32"), raw.to(y, "int32")) end
operators.logical_xor = function(a) return exclusive(raw.ne(a.self, 0), raw.ne(a.other, 0)) end
for _, name in ipairs{"bitwise_xor", "__xor__"} do
  operators[name] = torch.of_bits(exclusive, function(x, y, common) return raw.sub(raw.add(x, y), raw.mul(common, 2)) end)
end
for name, shift in pairs{["bitwise_left_shift"] = raw.mul, ["bitwise_right_shift"] = raw.floor_divide} do
  operators[name] = function(a)
    local by = a.other
    by = is_tensor(by) and torch.whole_power(raw.full({}, 2, "int32"), raw.to(by, "int32"), "int32") or 1 << by
    if not is_tensor(a.self) then fail("%s of a number is not supported", name) end
    return raw.to(shift(raw.to(a.self, "int32"), by), core.type(a.self))
  end
end
operators.__lshift__, operators.__rshift__ = operators.bitwise_left_shift, operators.bitwise_right_shift

operators.clamp = function(a)
  local x = a.self
  if is_tensor(a.min) or is_tensor(a.max) then
    if a.min ~= nil then x = raw.maximum(x, a.min) end
    if a.max ~= nil then x = raw.minimum(x, a.max) end
    return x
  end
  if is_float(x) then return raw.clamp(x, a.min, a.max) end
  if math.type(a.min) == "float" or math.type(a.max) == "float" then return raw.clamp(floats(x), a.min, a.max) end
  if a.min ~= nil then x = raw.where(raw.lt(x, a.min), a.min, x) end
  if a.max ~= nil then x = raw.where(raw.gt(x, a.max), a.max, x) end
  return x
end
operators.clamp_min = function(a) return operators.clamp{self = a.self, min = a.min} end
operators.clamp_max = function(a) return operators.clamp{self = a.self, max = a.max} end
operators.type_as = function(a) return raw.to(a.self, core.type(a.other)) end
operators._safe_softmax = function(a)
  local y = raw.softmax(a.self, a.dim)
  local open = raw.to(raw.gt(a.self, -math.huge), "float32")
  return raw.where(raw.gt(raw.amax(open, {a.dim}, true), 0), y, 0.0)
end
operators.native_dropout = function(a) return operators.dropout{input = a.input, p = a.p, train = a.train ~= false} end

-- --------------------------------------------------------------------------------- along dimensions

operators.cumsum = function(a)
  local x, small = a.self, not holds_large(a.self)
  if a.dtype or not is_float(x) then x = raw.to(x, a.dtype or "int64") end
  if not is_float(x) and not small then return up_to_each(x, a.dim, raw.add) end
  local y = through_floats(x, function(v) return raw.cumsum(v, a.dim) end)
  return is_float(y) and y or torch.note_small(y)
end
operators.cumprod = function(a)
  local x = a.self
  if a.dtype or not is_float(x) then x = raw.to(x, a.dtype or "int64") end
  return is_float(x) and raw.cumprod(x, a.dim) or up_to_each(x, a.dim, raw.mul)
end
operators.prod = calls("prod", "self", "dim", "keepdim", "dtype")

-- The values and the indices of max, min, sort, topk: by floats, and in the tensor's own type. of_whole: the same of whole
-- numbers, which may be larger than floats hold.
local function with_indices(f, of_whole)
  return function(a)
    local x = a.self
    if holds_large(x) then return of_whole(x, a) end
    local values, indices = f(floats(x), a)
    if indices == nil then return is_float(x) and values or raw.to(values, core.type(x)) end
    return is_float(x) and values or raw.to(values, core.type(x)), indices
  end
end
torch.with_indices = with_indices
for _, name in ipairs{"max", "min"} do
  local f, of_two = raw[name], name == "max" and "maximum" or "minimum"
  operators[name] = function(a)
    if a.other ~= nil then return operators[of_two]{self = a.self, other = a.other} end
    return with_indices(function(x) return f(x, a.dim, a.keepdim) end, function(x)
      local values = raw["a" .. name](x, a.dim ~= nil and {a.dim} or nil, a.keepdim)
      if a.dim == nil then return values end
      return values, raw.argmax(raw.to(raw.eq(x, raw["a" .. name](x, {a.dim}, true)), "float32"), a.dim, a.keepdim)
    end)(a)
  end
end
-- Along its first dimension a tensor is sorted as a whole, however the batch is cut.
local function sortable(x, dim)
  local shape = core.shape(x)
  return #shape > 0 and base.dimension(shape, dim or -1) == 0 and raw.replicate(x) or x
end
torch.sortable = sortable
-- In order, and their indices; equal ones stay as they are.
local function sorted_whole(x, dim, descending)
  x = sortable(x, dim)
  if #core.shape(x) == 0 then return x, raw.full({}, 0, "int64") end
  local d = base.dimension(core.shape(x), dim or -1)
  local order = order_of_whole(x, d, descending or false)
  return raw.gather(x, d, order), raw.to(order, "int64")
end
torch.sorted_whole = sorted_whole
operators.sort = with_indices(function(x, a) return raw.sort(sortable(x, a.dim), a.dim, a.descending, a.stable) end,
  function(x, a) return sorted_whole(x, a.dim, a.descending, a.stable) end)
operators.topk = with_indices(function(x, a) return raw.topk(sortable(x, a.dim), a.k, a.dim, a.largest, a.sorted) end, function(x, a)
  local d = base.dimension(core.shape(x), a.dim or -1)
  local values, order = sorted_whole(x, d, a.largest ~= false, a.sorted)
  return raw.narrow(values, d, 0, a.k), raw.narrow(order, d, 0, a.k)
end)
operators.argsort = function(a)
  if not holds_large(a.self) then return raw.argsort(sortable(floats(a.self), a.dim), a.dim, a.descending, a.stable) end
  return (select(2, sorted_whole(a.self, a.dim, a.descending, a.stable)))
end
for name, most in pairs{argmax = "amax", argmin = "amin"} do
  operators[name] = function(a)
    local x = a.self
    if not holds_large(x) then return raw[name](floats(x), a.dim, a.keepdim) end
    local value = raw[most](x, a.dim ~= nil and {a.dim} or nil, a.dim ~= nil)
    return raw.argmax(raw.to(raw.eq(x, value), "float32"), a.dim, a.keepdim)
  end
end
operators.all = function(a) return raw.all(a.self, a.dim, a.keepdim) end
operators.std = function(a)
  local correction = a.correction
  if correction == nil then correction = a.unbiased == false and 0 or 1 end
  return raw.std(a.self, a.dim, nil, a.keepdim, correction)
end
operators.var_mean = function(a) return operators.var(a), operators.mean(a) end
operators.cosine_similarity = calls("cosine_similarity", "x1", "x2", "dim", "eps")
operators.bincount = function(a) return raw.bincount(a.self, a.weights, a.minlength) end

operators.native_group_norm = function(a) return raw.group_norm(a.input, a.group, a.weight, a.bias, a.eps) end
operators.instance_norm = function(a)
  return raw.instance_norm(a.input, a.running_mean, a.running_var, a.weight, a.bias, a.use_input_stats,
    a.momentum, a.eps)
end
operators._native_batch_norm_legit_functional = operators.batch_norm
operators._native_batch_norm_legit = operators.batch_norm

-- ---------------------------------------------------------------------------------------- products

-- The rows offs[e - 1] .. offs[e] of x, times weight[e]. All products are made, and of each row one
-- is taken.
local function grouped_product(x, weight, offs)
  if #core.shape(x) ~= 2 or #core.shape(weight) ~= 3 then
    fail("grouped_mm supports only [rows, k] x [groups, k, n]")
  end
  local rows, groups = core.shape(x)[1], core.shape(weight)[1]
  local row = base.view(raw.arange(rows), {rows, 1})
  local behind = raw.to(raw.ge(row, raw.to(offs, "int32")), "int32")
  local group = base.view(raw.sum(behind, 1), {rows, 1})
  local is_in = raw.eq(raw.to(group, "int32"), raw.arange(groups))
  local all = base.product(x, weight, "sk,ekn->sen")
  return raw.sum(raw.where(base.view(is_in, {rows, groups, 1}), all, 0.0), 1)
end
operators["torch.ops.transformers.grouped_mm_fallback.default"] = function(a)
  return grouped_product(a.input, a.weight, a.offs)
end
operators._grouped_mm = function(a)
  if a.bias ~= nil then fail("_grouped_mm with a bias is not supported") end
  return grouped_product(a.self, a.mat2, a.offs or fail("_grouped_mm without offs is not supported"))
end
operators.mv = function(a) return raw.matmul(a.self, a.vec) end
operators.dot = function(a) return raw.matmul(a.self, a.tensor) end
operators.outer = calls("outer", "self", "vec2")
operators.bilinear = function(a)
  -- [n, i] [o, i, j] [n, j]: by [n, i] -> [n, o, j], then with the other; n is all dimensions but the last one.
  local shape, w = core.shape(a.input1), core.shape(a.weight)
  local n = base.elements(shape) // w[2]
  local left = base.product(base.view(a.input1, {n, w[2]}), a.weight, "ni,oij->noj")
  local y = raw.sum(raw.mul(left, raw.unsqueeze(base.view(a.input2, {n, w[3]}), 1)), 2)
  if a.bias then y = raw.add(y, a.bias) end
  return base.view(y, base.resized(shape, #shape - 1, w[1]))
end

-- v, with the lengths g along dimension d.
local function weight_norm(a)
  local dims, d = {}, base.dimension(core.shape(a.v), a.dim or 0)
  for i = 0, #core.shape(a.v) - 1 do
    if i ~= d then dims[#dims + 1] = i end
  end
  return raw.mul(a.v, raw.div(a.g, raw.norm(a.v, 2, dims, true)))
end
operators._weight_norm, operators._weight_norm_interface = weight_norm, weight_norm

local function pair(v, n)
  if type(v) ~= "table" then return v end
  if #v == 1 and n == 2 then return {v[1], v[1]} end
  return v
end

local function convolution(a)
  local n, further = #core.shape(a.weight) - 2, a.output_padding -- of a transposed one
  if n == 3 and a.transposed then
    return raw.conv_transpose3d(a.input, a.weight, a.bias, a.stride, a.padding, further, a.groups, a.dilation)
  end
  if n == 3 then return operators.conv3d(a) end
  if n ~= 1 and n ~= 2 then fail("a convolution over %d dimensions is not supported", n) end
  if a.transposed then
    local f = n == 1 and raw.conv_transpose1d or raw.conv_transpose2d
    return f(a.input, a.weight, a.bias, pair(a.stride, n), pair(a.padding, n), pair(further, n), a.groups,
      pair(a.dilation, n))
  end
  local f = n == 1 and raw.conv1d or raw.conv2d
  return f(a.input, a.weight, a.bias, pair(a.stride, n), pair(a.padding, n), pair(a.dilation, n), a.groups)
end
operators.convolution = convolution
for _, name in ipairs{"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"} do
  operators[name] = function(a)
    a.transposed = true
    return convolution(a)
  end
end

-- ------------------------------------------------------------------------------------------ images

operators.max_pool1d = calls("max_pool1d", "self", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
operators.avg_pool1d = calls("avg_pool1d", "self", "kernel_size", "stride", "padding", "ceil_mode",
  "count_include_pad")
operators.adaptive_avg_pool1d = calls("adaptive_avg_pool1d", "self", "output_size")

-- The sizes are given, or are the input's times the factors, which then are the scales, too.
local function resized(mode)
  return function(a)
    local x = a.input or a.self
    local shape, scales, sizes = core.shape(x), a.scale_factors, a.output_size
    if sizes == nil then
      sizes = {}
      for i, s in ipairs(scales or fail("an interpolation without a size is not supported")) do
        sizes[i] = math.floor(shape[i + 2] * s)
      end
    end
    scales = scales or a.scales and {a.scales} or #shape == 4 and {a.scales_h or false, a.scales_w or false}
      or {a.scales_d or false, a.scales_h or false, a.scales_w or false}
    if #sizes ~= #shape - 2 or #shape > 5 then fail("an interpolation supports only [batch, channels, ...]") end
    return base.resample(x, sizes, scales, mode, a.align_corners)
  end
end
for name, mode in pairs{nearest1d = "nearest", nearest2d = "nearest", nearest3d = "nearest", linear1d = "linear",
  bilinear2d = "bilinear", trilinear3d = "trilinear", bicubic2d = "bicubic"} do
  operators["upsample_" .. name] = resized(mode)
end
for _, dims in ipairs{"1d", "2d", "3d"} do operators["_upsample_nearest_exact" .. dims] = resized("nearest-exact") end

-- x with copies of its own elements before and after it along dimension d: those at distance 0 and on
-- from the border, or reflected at it.
local function bordered(x, d, before, after, reflects)
  local size, parts = core.shape(x)[d + 1], {}
  local function border(first, n)
    if n <= 0 then return end
    if not reflects then
      local sizes = table.move(core.shape(x), 1, #core.shape(x), 1, {})
      sizes[d + 1] = n
      parts[#parts + 1] = raw.expand(raw.narrow(x, d, first, 1), sizes)
    elseif n >= size then
      fail("a reflection of %d elements of %d is not supported", n, size)
    else
      parts[#parts + 1] = raw.flip(raw.narrow(x, d, first == 0 and 1 or size - 1 - n, n), {d})
    end
  end
  if before < 0 or after < 0 then fail("a negative border is not supported") end
  border(0, before)
  parts[#parts + 1] = x
  border(size - 1, after)
  return #parts == 1 and x or raw.cat(parts, d)
end

local function bordered_all(x, pad, reflects)
  local n = #core.shape(x)
  for i = 1, #pad // 2 do
    x = bordered(x, n - i, pad[2 * i - 1], pad[2 * i], reflects)
  end
  return x
end
for _, name in ipairs{"1d", "2d", "3d"} do
  operators["reflection_pad" .. name] = function(a) return bordered_all(a.self, a.padding, true) end
  operators["replication_pad" .. name] = function(a) return bordered_all(a.self, a.padding, false) end
end
-- Borders from the other end.
local function wrapped_all(x, pad)
  local n = #core.shape(x)
  for i = 1, #pad // 2 do
    local d, before, after = n - i, pad[2 * i - 1], pad[2 * i]
    local size, parts = core.shape(x)[d + 1], {x}
    if before < 0 or after < 0 or before > size or after > size then fail("a circular border of %d and %d is not supported", before, after) end
    if before > 0 then table.insert(parts, 1, raw.narrow(x, d, size - before, before)) end
    if after > 0 then parts[#parts + 1] = raw.narrow(x, d, 0, after) end
    if #parts > 1 then x = raw.cat(parts, d) end
  end
  return x
end
operators.pad = function(a)
  if a.mode == "reflect" or a.mode == "replicate" then return bordered_all(a.self, a.pad, a.mode == "reflect") end
  if a.mode == "circular" then return wrapped_all(a.self, a.pad) end
  return raw.pad(a.self, a.pad, a.mode, torch.value_for(a.self, a.value))
end
operators.pixel_shuffle = calls("pixel_shuffle", "self", "upscale_factor")

-- ---------------------------------------------------------------------------------- shapes and parts

operators.repeat_interleave = function(a)
  if is_tensor(a.repeats) then fail("repeat_interleave by a tensor gives a size that is not known") end
  local repeated, size = raw.repeat_interleave(a.self, a.repeats, a.dim), a.output_size
  local shape = core.shape(repeated)
  local made = shape[a.dim and a.dim % #shape + 1 or 1]
  if size and size ~= made then fail("output_size is %d, but it has %d elements", size, made) end
  return repeated
end
operators.broadcast_to = operators.expand
operators.expand_as = function(a) return raw.expand(a.self, core.shape(a.other)) end
operators.view_as = function(a) return base.view(a.self, core.shape(a.other)) end
operators.reshape_as = operators.view_as
operators.narrow = calls("narrow", "self", "dim", "start", "length")
operators.mT = function(a) return raw.transpose(a.self, -2, -1) end
operators.swapaxes = function(a) return raw.transpose(a.self, a.axis0, a.axis1) end
operators.swapdims = operators.transpose
-- For each dimension of the moved tensor that of its own.
function torch.moved_dimensions(a, shape)
  local function list(v) return type(v) == "table" and v or {v} end
  local from, to, order, taken = list(a.source), list(a.destination), {}, {}
  for i, d in ipairs(from) do
    local at = base.dimension(shape, d)
    order[base.dimension(shape, to[i]) + 1], taken[at] = at, true
  end
  local next_free = 0
  for i = 1, #shape do
    if not order[i] then
      while taken[next_free] do next_free = next_free + 1 end
      order[i], next_free = next_free, next_free + 1
    end
  end
  return order
end
operators.movedim = function(a) return raw.permute(a.self, torch.moved_dimensions(a, core.shape(a.self))) end

operators.diagonal = calls("diagonal", "self", "offset", "dim1", "dim2")

-- `whole` with `part` in the place of its elements first .. first + count - 1 of dimension d.
local function put_back(whole, part, d, first, count)
  local size, parts = core.shape(whole)[d + 1], {}
  if first > 0 then parts[1] = raw.narrow(whole, d, 0, first) end
  parts[#parts + 1] = part
  if first + count < size then parts[#parts + 1] = raw.narrow(whole, d, first + count, size - first - count) end
  return #parts == 1 and part or raw.cat(parts, d)
end
torch.put_back = put_back

operators.select_scatter = function(a)
  local shape = core.shape(a.self)
  local d = base.dimension(shape, a.dim)
  return put_back(a.self, raw.unsqueeze(a.src, d), d, a.index < 0 and a.index + shape[d + 1] or a.index, 1)
end
operators.slice_scatter = function(a)
  local shape = core.shape(a.self)
  local d = base.dimension(shape, a.dim or 0)
  local first, count = torch.slice_of(shape[d + 1], a.start, a["end"])
  return torch.put_every(a.self, a.src, d, first, count, a.step or 1)
end

-- -------------------------------------------------------------------------------------- by indices

-- Indices of dimension `size` as one may write them: negative ones count from the end.
local function from_start(index, size)
  if not constants.is(index) then return index end
  local low, high = constants.range(index)
  if high and high < 0 then return constants.tensor(constants.add(index, size)) end
  local x = constants.tensor(index)
  return low and low < 0 and raw.where(raw.lt(x, 0), raw.add(x, size), x) or x
end

-- The tensors' shapes broadcast.
local function broadcast(list)
  local n, shape = 0, {}
  for _, x in ipairs(list) do n = math.max(n, #core.shape(x)) end
  for i = 1, n do
    shape[i] = 1
    for _, x in ipairs(list) do
      local s = core.shape(x)
      local size = s[#s - n + i]
      if size and size ~= 1 then shape[i] = size end
    end
  end
  return shape
end

operators.broadcast_tensors = function(a)
  local shape, list = broadcast(a.tensors), {}
  for i, x in ipairs(a.tensors) do list[i] = raw.expand(x, shape) end
  return table.unpack(list)
end

-- For x[..., i, j, ...]: x with the indexed dimensions as one, the place of that dimension, the indices
-- into it, their shape, and the place of this shape's dimensions in the result.
local function one_index(x, indices)
  local shape, dims, list = core.shape(x), {}, {}
  for i, index in pairs(indices) do
    if index then
      if type_of(index) == "bool" then
        fail("an index by a mask gives a size that is not known")
      end
      dims[#dims + 1] = i - 1
    end
  end
  table.sort(dims)
  if #dims == 0 then fail("an index by no tensor is not supported") end
  for k, d in ipairs(dims) do list[k] = from_start(indices[d + 1], shape[d + 1]) end
  local adjacent = dims[#dims] - dims[1] == #dims - 1
  -- Dimensions that are not side by side come first.
  local order, first = {}, adjacent and dims[1] or 0
  local is_indexed = {}
  for _, d in ipairs(dims) do is_indexed[d] = true end
  for d = 0, #shape - 1 do
    if not is_indexed[d] and #order == first then for _, at in ipairs(dims) do order[#order + 1] = at end end
    if not is_indexed[d] then order[#order + 1] = d end
  end
  if #order < #shape then for _, at in ipairs(dims) do order[#order + 1] = at end end
  local sizes, together, flat = {}, 1, nil
  for k, d in ipairs(dims) do
    together = together * shape[d + 1]
    flat = flat and raw.add(raw.mul(flat, shape[d + 1]), raw.to(list[k], core.type(flat))) or list[k]
  end
  local index_shape = broadcast(list)
  for k, d in ipairs(order) do
    if not is_indexed[d] then sizes[#sizes + 1] = shape[d + 1] elseif k == first + 1 then sizes[#sizes + 1] = together end
  end
  return {order = order, sizes = sizes, dim = first, index = flat, shape = index_shape}
end

local function merged(x, at)
  for i, d in ipairs(at.order) do
    if d ~= i - 1 then
      x = raw.permute(x, at.order)
      break
    end
  end
  return base.view(x, at.sizes)
end

-- The sizes with those of the indices in the place of the one dimension.
local function with_indices_shape(at)
  local sizes = {}
  for i, size in ipairs(at.sizes) do
    if i - 1 == at.dim then
      for _, s in ipairs(at.shape) do sizes[#sizes + 1] = s end
    else
      sizes[#sizes + 1] = size
    end
  end
  return sizes
end

local function flat_index(at)
  return base.view(raw.expand(at.index, at.shape), {base.elements(at.shape)})
end


operators.index = function(a)
  local x = plain_tensor(a.self)
  local at = one_index(x, a.indices)
  return base.view(raw.index_select(merged(x, at), at.dim, flat_index(at)), with_indices_shape(at))
end
operators._unsafe_index = operators.index

local function put_by_mask(a, mask)
  if a.accumulate then fail("index_put by a mask cannot accumulate here") end
  local values = plain_tensor(a.values)
  if base.elements(core.shape(values)) ~= 1 then
    fail("index_put by a mask takes one value, not a tensor of them")
  end
  local sizes = {}
  for i = 1, #core.shape(a.self) do sizes[i] = core.shape(mask)[i] or 1 end
  return raw.where(base.view(mask, sizes), base.view(values, {}), a.self)
end

-- self with `values` at the places that the indices name.
operators.index_put = function(a)
  a.self = plain_tensor(a.self)
  if not is_float(a.self) and not (a.indices[1] and type_of(a.indices[1]) == "bool") then
    local x, values = a.self, plain_tensor(a.values)
    local function of_floats(v, w)
      return operators.index_put{self = v, indices = a.indices, accumulate = a.accumulate, values = w}
    end
    if core.type(x) == "bool" then return raw.to(of_floats(floats(x), floats(values)), "bool") end
    return by_parts(x, values, a.accumulate and bits_of_sums(values) or 22, of_floats)
  end
  local first = a.indices[1] and plain_tensor(a.indices[1])
  if first and core.type(first) == "bool" and #a.indices == 1 then return put_by_mask(a, first) end
  local at = one_index(a.self, a.indices)
  local x = merged(a.self, at)
  local values = raw.expand(plain_tensor(a.values), with_indices_shape(at))
  local n, sizes = base.elements(at.shape), table.move(at.sizes, 1, #at.sizes, 1, {})
  sizes[at.dim + 1] = n
  values = base.view(values, sizes)
  local y
  if a.accumulate then
    y = raw.index_add(x, at.dim, flat_index(at), values)
  else
    local column = {}
    for i = 1, #sizes do column[i] = i == at.dim + 1 and n or 1 end
    y = raw.scatter(x, at.dim, raw.expand(base.view(flat_index(at), column), sizes), values)
  end
  local shape, back = {}, {}
  for i, d in ipairs(at.order) do shape[i], back[d + 1] = core.shape(a.self)[d + 1], i - 1 end
  y = base.view(y, shape)
  for i, d in ipairs(back) do
    if d ~= i - 1 then return raw.permute(y, back) end
  end
  return y
end
operators._unsafe_index_put = operators.index_put

operators.scatter = function(a)
  local index = plain_tensor(a.index)
  local x = plain_tensor(a.self)
  local src = a.src ~= nil and plain_tensor(a.src)
    or raw.full(core.shape(index), is_float(x) and a.value + 0.0 or a.value, core.type(x))
  local function of_floats(v, w) return raw.scatter(v, a.dim, index, w) end
  if is_float(x) or core.type(x) == "bool" then return raw.to(of_floats(floats(x), floats(src)), core.type(x)) end
  return by_parts(x, src, 22, of_floats)
end
local function scatter_add(a)
  local index = plain_tensor(a.index)
  local function of_floats(x, src) return raw.scatter_add(x, a.dim, index, src) end
  if is_float(a.self) then return of_floats(a.self, a.src) end
  if core.type(a.self) == "bool" then fail("scatter_add of bools is not supported") end
  return by_parts(a.self, a.src, bits_of_sums(a.src), of_floats)
end
operators.scatter_add = scatter_add
operators.scatter_reduce = function(a)
  if not is_float(a.self) then
    if a.reduce == "sum" and a.include_self ~= false then return scatter_add(a) end
    if holds_large(a.self) then fail("scatter_reduce: the %s of whole numbers is not supported", a.reduce) end
  end
  if not is_float(a.self) and a.reduce == "mean" then fail("scatter_reduce: the mean of whole numbers is not supported") end
  local src = is_float(a.self) and a.src or floats(a.src)
  return through_floats(a.self, function(x)
    if a.reduce == "sum" and a.include_self ~= false then return raw.scatter_add(x, a.dim, a.index, src) end
    return raw.scatter_reduce(x, a.dim, a.index, src, a.reduce, a.include_self)
  end)
end
operators.index_add = function(a)
  local src = a.alpha ~= nil and a.alpha ~= 1 and raw.mul(a.source, a.alpha) or a.source
  local function of_floats(x, y) return raw.index_add(x, a.dim, a.index, y) end
  if is_float(a.self) then return of_floats(a.self, src) end
  return by_parts(a.self, src, bits_of_sums(src), of_floats)
end
operators.one_hot = function(a)
  if not a.num_classes or a.num_classes < 1 then fail("one_hot needs num_classes") end
  return raw.one_hot(a.self, a.num_classes)
end

-- --------------------------------------------------------------------------------------- recurrences

-- One direction of a layer: x [steps, batch, width], and what it begins with. cell(gates of the input,
-- state): the next state, whose first part is the output.
local function over_steps(x, state, weights, cell, backwards)
  local steps, list = core.shape(x)[1], {}
  local all = raw.linear(x, weights.input, weights.input_bias)
  for i = 1, steps do
    local t = backwards and steps - i or i - 1
    state = cell(raw.select(all, 0, t), state, weights)
    list[t + 1] = state[1]
  end
  return raw.stack(list, 0), state
end

local function recurrence(cell)
  return function(a)
    local given = a.hx
    local states = is_tensor(given) and {given} or given
    if not a.input or a.batch_sizes ~= nil then fail("a recurrence over a packed sequence is not supported") end
    local p = a.dropout
    if a.train and p ~= 0 then fail("dropout between the layers of a recurrence is not supported") end
    local x = a.batch_first and raw.transpose(a.input, 0, 1) or a.input
    if #core.shape(x) ~= 3 then fail("a recurrence supports only [steps, batch, width]") end
    local each, directions, last = a.has_biases and 4 or 2, a.bidirectional and 2 or 1, {}
    for layer = 0, a.num_layers - 1 do
      local outputs = {}
      for direction = 1, directions do
        local k = layer * directions + direction - 1
        local p, state = a.params, {}
        if #p ~= each * directions * a.num_layers then fail("a recurrence with a projection is not supported, but in the archive of exported.run_decompositions(), where PyTorch drops detach()") end
        for i, s in ipairs(states) do state[i] = raw.select(s, 0, k) end
        local weights = {input = p[k * each + 1], hidden = p[k * each + 2], input_bias = a.has_biases and p[k * each + 3] or nil,
          hidden_bias = a.has_biases and p[k * each + 4] or nil}
        local ends
        outputs[direction], ends = over_steps(x, state, weights, cell, direction == 2)
        for i, s in ipairs(ends) do
          last[i] = last[i] or {}
          last[i][k + 1] = s
        end
      end
      x = #outputs == 1 and outputs[1] or raw.cat(outputs, 2)
    end
    local results = {a.batch_first and raw.transpose(x, 0, 1) or x}
    for i, list in ipairs(last) do results[i + 1] = raw.stack(list, 0) end
    return table.unpack(results)
  end
end

-- The sums of an LSTM's gates, and its memory: the next output and memory.
function torch.lstm_step(gates, memory)
  local i, f, c, o = raw.chunk(gates, 4, -1)
  memory = raw.add(raw.mul(raw.sigmoid(f), memory), raw.mul(raw.sigmoid(i), raw.tanh(c)))
  return raw.mul(raw.sigmoid(o), raw.tanh(memory)), memory
end
operators.lstm = recurrence(function(x, state, w)
  return {torch.lstm_step(raw.add(x, raw.linear(state[1], w.hidden, w.hidden_bias)), state[2])}
end)
-- From the products of a GRU's gates with the input and with the last output, and that output: the next one.
function torch.gru_step(x, h, last)
  local xr, xz, xn = raw.chunk(x, 3, -1)
  local hr, hz, hn = raw.chunk(h, 3, -1)
  local z = raw.sigmoid(raw.add(xz, hz))
  local n = raw.tanh(raw.add(xn, raw.mul(raw.sigmoid(raw.add(xr, hr)), hn)))
  return raw.add(n, raw.mul(z, raw.sub(last, n)))
end
operators.gru = recurrence(function(x, state, w)
  return {torch.gru_step(x, raw.linear(state[1], w.hidden, w.hidden_bias), state[1])}
end)
local function plain_recurrence(name)
  local f = raw[name]
  return recurrence(function(x, state, w)
    return {f(raw.add(x, raw.linear(state[1], w.hidden, w.hidden_bias)))}
  end)
end
operators.rnn_tanh, operators.rnn_relu = plain_recurrence("tanh"), plain_recurrence("relu")

-- ------------------------------------------------------------------------------------------ losses

local REDUCTIONS = {[0] = "none", [1] = "mean", [2] = "sum"}

local function reduction(a) return REDUCTIONS[a.reduction or 1] end
operators.cross_entropy_loss = function(a)
  return raw.cross_entropy(a.self, a.target, a.weight, nil, a.ignore_index, nil, reduction(a), a.label_smoothing)
end
operators.nll_loss = function(a)
  return raw.nll_loss(a.self, a.target, a.weight, nil, a.ignore_index, nil, reduction(a))
end
operators.nll_loss_nd, operators.nll_loss2d = operators.nll_loss, operators.nll_loss
operators.nll_loss_forward, operators.nll_loss2d_forward = operators.nll_loss, operators.nll_loss
operators.mse_loss = function(a) return raw.mse_loss(a.self, a.target, nil, nil, reduction(a)) end
operators.l1_loss = function(a) return raw.l1_loss(a.self, a.target, nil, nil, reduction(a)) end
operators.huber_loss = function(a) return raw.huber_loss(a.self, a.target, reduction(a), a.delta) end
operators.smooth_l1_loss = function(a)
  return raw.smooth_l1_loss(a.self, a.target, nil, nil, reduction(a), a.beta)
end
operators.binary_cross_entropy_with_logits = function(a)
  return raw.binary_cross_entropy_with_logits(a.self, a.target, a.weight, nil, nil, reduction(a), a.pos_weight)
end

-- ------------------------------------------------------------------------------ constants, as they are

-- Tensors whose values are not set.
for _, name in ipairs{"empty", "empty_strided", "empty_permuted", "new_empty"} do
  operators[name] = function(a)
    local own, _ = a.self and type_of(a.self) or "float32", a.stride or a.physical_layout -- their order in memory
    return constants.full(a.size, 0, a.dtype or own)
  end
end
operators.empty_like = operators.zeros_like
operators.sym_numel = function(a)
  return base.elements(constants.is(a.self) and a.self.shape or core.shape(a.self))
end
-- A float that a tensor holds stays a tensor, and gets no gradient; a whole number may be a size.
operators._local_scalar_dense = function(a)
  local known = constants.is(a.self) and constants.uniform(a.self)
  if known then return known end
  if not constants.is(a.self) and is_float(a.self) then return raw.detach(base.view(a.self, {})) end
  fail("a whole number that a tensor holds is not known when the program is made")
end
operators.item = operators._local_scalar_dense

for _, name in ipairs{"index", "_unsafe_index", "index_put", "_unsafe_index_put", "scatter", "_embedding_bag",
  "embedding_bag", "_embedding_bag_forward_only", "empty_like", "sym_numel", "_local_scalar_dense", "item"} do
  base.torch_takes_constants[name] = true
end

local c = on_constants
c.ones_like, c.zeros_like = operators.ones_like, operators.zeros_like
c.expand_as = function(a) return constants.expand(a.self, a.other.shape) end
c.type_as = function(a) return constants.to(a.self, a.other.type) end
c.floor_divide = function(a) return constants.floor_divide(a.self, a.other) end
c.div = function(a)
  if a.rounding_mode == "floor" then return constants.floor_divide(a.self, a.other) end
end
for _, name in ipairs{"min", "max", "minimum", "maximum"} do
  c[name] = function(a)
    return a.other ~= nil and constants.extreme(a.self, a.other, string.sub(name, 1, 3) == "min") or nil
  end
end

