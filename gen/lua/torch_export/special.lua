-- special.lua: operators of exported programs, of the kind that few models have: special functions, second names,
-- windows and short-time Fourier transforms, losses by margins, and what they are made of.
local core, base = ...
local raw, constants, fail, torch = base.raw, base.constants, base.fail, base.torch
local operators, on_complex, is_tensor = base.torch_operators, torch.on_complex, core.is_tensor

local floats, plain_tensor = torch.floats, torch.plain_tensor

-- ------------------------------------------------------------------------------------- second names

for name, first in pairs{special_erf = "erf", special_erfc = "erfc", special_erfinv = "erfinv", special_exp2 = "exp2",
  special_expit = "sigmoid", special_expm1 = "expm1", special_log1p = "log1p", special_gammaln = "lgamma",
  special_digamma = "digamma", special_psi = "digamma", special_round = "round", special_sinc = "sinc",
  special_softmax = "softmax", special_log_softmax = "log_softmax", special_logsumexp = "logsumexp",
  linalg_matmul = "matmul", linalg_matrix_power = "matrix_power", linalg_multi_dot = "chain_matmul", ger = "outer",
  trapz = "trapezoid", native_channel_shuffle = "channel_shuffle", inverse = "linalg_inv", det = "linalg_det",
  slogdet = "linalg_slogdet", matrix_exp = "linalg_matrix_exp"} do
  operators[name] = function(a)
    if first == "linalg_inv" or first == "linalg_det" or first == "linalg_slogdet" then
      return operators[first]{A = a.self}
    end
    return operators[first](a)
  end
end
for name in string.gmatch("alias detach diagonal expand permute select slice split split_with_sizes squeeze t transpose unbind "
  .. "unfold unsqueeze view as_strided narrow", "%S+") do
  operators[name .. "_copy"] = function(a) return operators[name](a) end
end

-- ---------------------------------------------------------------------------------- element by element

operators.copysign = function(a)
  local size, y = raw.abs(floats(a.self)), a.other
  if not is_tensor(y) then return (y < 0 or 1 / y < 0) and raw.neg(size) or size end
  y = floats(y)
  local none = raw.eq(y, 0)
  -- Of 0 and -0 the reciprocal has the sign.
  local below = raw.lt(raw.where(none, raw.div(1, y), y), 0)
  return raw.where(below, raw.neg(size), size)
end
operators.deg2rad = function(a) return raw.mul(floats(a.self), math.pi / 180) end
operators.rad2deg = function(a) return raw.mul(floats(a.self), 180 / math.pi) end
operators.float_power = function(a)
  return raw.pow(is_tensor(a.self) and floats(a.self) or a.self, is_tensor(a.exponent) and floats(a.exponent) or a.exponent)
end
for name, of_two in pairs{fmax = "maximum", fmin = "minimum"} do
  operators[name] = function(a)
    local x, y = torch.promoted(a.self, a.other)
    return raw.where(raw.isnan(x), y, raw.where(raw.isnan(y), x, raw[of_two](x, y)))
  end
end
operators.isclose = function(a)
  local x, y = torch.promoted(a.self, a.other)
  x, y = floats(x), floats(y)
  local far = raw.abs(raw.sub(x, y))
  local bound = raw.add(raw.mul(raw.abs(y), a.rtol == nil and 1e-5 or a.rtol), a.atol == nil and 1e-8 or a.atol)
  local is_near = raw.logical_or(raw.eq(x, y), raw.logical_and(raw.isfinite(far), raw.le(far, bound)))
  return a.equal_nan and raw.logical_or(is_near, raw.logical_and(raw.isnan(x), raw.isnan(y))) or is_near
end
operators.isposinf = function(a) return operators.eq{self = floats(a.self), other = math.huge} end
operators.isneginf = function(a) return operators.eq{self = floats(a.self), other = -math.huge} end
operators.isreal = function(a) return raw.full(core.shape(a.self), 1, "bool") end
operators.logaddexp2 = function(a)
  local by = math.log(2)
  return raw.div(raw.logaddexp(raw.mul(a.self, by), raw.mul(a.other, by)), by)
end
operators.special_entr = function(a)
  local x = floats(a.self)
  local inside = raw.gt(x, 0)
  local y = raw.where(inside, x, 1.0)
  return raw.where(inside, raw.neg(raw.mul(y, raw.log(y))), raw.where(raw.eq(x, 0), 0.0, -math.huge))
end
operators.special_ndtr = function(a)
  return raw.mul(operators.erfc{self = raw.mul(floats(a.self), -math.sqrt(0.5))}, 0.5)
end
operators.special_ndtri = function(a)
  return raw.mul(raw.erfinv(raw.sub(raw.mul(floats(a.self), 2), 1)), math.sqrt(2))
end
operators.special_xlog1py = function(a)
  local x, y = a.self, a.other
  if not is_tensor(y) then return raw.mul(x, math.log(1 + y)) end
  local none = is_tensor(x) and raw.eq(x, 0) or raw.full(core.shape(y), x == 0 and 1 or 0, "bool")
  none = raw.logical_and(none, raw.eq(y, y))
  return raw.where(none, 0.0, raw.mul(x, raw.log1p(raw.where(none, 0.0, floats(y)))))
end
operators.mvlgamma = function(a)
  local sum
  for j = 0, a.p - 1 do
    local y = raw.lgamma(raw.sub(floats(a.self), j / 2))
    sum = sum and raw.add(sum, y) or y
  end
  return raw.add(sum, a.p * (a.p - 1) / 4 * math.log(math.pi))
end
operators.special_multigammaln = operators.mvlgamma
operators.polygamma = function(a)
  if a.n ~= 0 then fail("polygamma supports only n = 0") end
  return raw.digamma(a.self)
end
-- Not in training the slope is that in the middle.
operators.rrelu = function(a)
  local low, high = a.lower or 1 / 8, a.upper or 1 / 3
  if a.training then fail("rrelu in training is not supported") end
  return raw.leaky_relu(a.self, (low + high) / 2)
end

-- ---------------------------------------------------------------------------------- shapes, products

operators.hstack = function(a)
  return raw.cat(a.tensors, #core.shape(a.tensors[1]) == 1 and 0 or 1)
end
local function stacked(least, dim)
  return function(a)
    local list = {}
    for i, x in ipairs(a.tensors) do list[i] = operators["atleast_" .. least .. "d"]{self = x} end
    return raw.cat(list, dim)
  end
end
operators.vstack, operators.dstack = stacked(2, 0), stacked(3, 2)
operators.row_stack = operators.vstack
operators.column_stack = function(a)
  local list = {}
  for i, x in ipairs(a.tensors) do list[i] = #core.shape(x) < 2 and base.view(x, {base.elements(core.shape(x)), 1}) or x end
  return raw.cat(list, 1)
end
operators.sum_to_size = function(a)
  local shape, dims = core.shape(a.self), {}
  for i, size in ipairs(shape) do
    local to = a.size[i - (#shape - #a.size)]
    if to == nil or to == 1 and size ~= 1 then dims[#dims + 1] = i - 1 end
  end
  return base.view(#dims > 0 and raw.sum(a.self, dims) or a.self, a.size)
end
operators.diagflat = function(a) return operators.diag_embed{self = raw.flatten(a.self), offset = a.offset} end
operators.block_diag = function(a)
  local list, wide, at = {}, 0, 0
  for i, x in ipairs(a.tensors) do
    list[i] = operators.atleast_2d{self = x}
    wide = wide + core.shape(list[i])[2]
  end
  for i, x in ipairs(list) do
    local own = core.shape(x)[2]
    list[i] = raw.pad(x, {at, wide - at - own})
    at = at + own
  end
  return raw.cat(list, 0)
end
operators.cartesian_prod = function(a)
  if #a.tensors == 1 then return a.tensors[1] end
  local list = {raw.meshgrid(a.tensors, "ij")}
  for i = 1, #list do list[i] = raw.flatten(list[i]) end
  return raw.stack(list, 1)
end
operators.inner = function(a)
  local x, y = a.self, a.other
  local s, t = core.shape(x), core.shape(y)
  if #s == 0 or #t == 0 then return raw.mul(x, y) end
  local sizes = table.move(s, 1, #s - 1, 1, {})
  for i = 1, #t - 1 do sizes[#sizes + 1] = t[i] end
  local rows, columns = base.view(x, {base.elements(s) // s[#s], s[#s]}), base.view(y, {base.elements(t) // t[#t], t[#t]})
  return base.view(raw.linear(rows, columns), sizes)
end
operators.chain_matmul = function(a)
  local list = a.tensors or a.matrices
  local y = list[1]
  for i = 2, #list do y = raw.matmul(y, list[i]) end
  return y
end
operators.linalg_vecdot = function(a) return raw.sum(raw.mul(a.x, a.y), a.dim or -1) end
operators.cross = function(a)
  local dim = a.dim
  for i, size in ipairs(core.shape(a.self)) do
    if dim == nil and size == 3 then dim = i - 1 end
  end
  return operators.linalg_cross{self = a.self, other = a.other, dim = dim}
end
-- Powers n - 1, ..., 0 of each number, or 0, 1, ...
local function powers(x, n, increasing)
  local list = {}
  for i = 0, n - 1 do list[increasing and i + 1 or n - i] = raw.pow(floats(x), i) end
  return raw.stack(list, -1)
end
operators.vander = function(a) return powers(a.x, a.N or core.shape(a.x)[1], a.increasing) end
operators.linalg_vander = function(a) return powers(a.x, a.N or core.shape(a.x)[#core.shape(a.x)], true) end
operators.cov = function(a)
  if a.fweights ~= nil or a.aweights ~= nil then fail("cov with weights is not supported") end
  local x = operators.atleast_2d{self = a.self}
  local n = core.shape(x)[2]
  x = raw.sub(x, raw.mean(x, 1, true))
  local y = raw.div(raw.matmul(x, raw.t(x)), n - (a.correction == nil and 1 or a.correction))
  return #core.shape(a.self) < 2 and base.view(y, {}) or y
end
operators.corrcoef = function(a)
  local y = operators.cov{self = a.self}
  if #core.shape(y) == 0 then return raw.div(y, y) end
  local deviation = raw.sqrt(raw.diagonal(y))
  return raw.clamp(raw.div(raw.div(y, raw.unsqueeze(deviation, 1)), deviation), -1, 1)
end
-- Half the difference of both neighbours; at the ends the difference from the one neighbour.
operators.gradient = function(a)
  local x, dims, by = a.self, a.dim, a.spacing == nil and 1 or a.spacing
  if a.edge_order ~= nil and a.edge_order ~= 1 then fail("gradient with edge_order %d is not supported", a.edge_order) end
  if type(dims) == "number" then dims = {dims} end
  if dims == nil then
    dims = {}
    for i = 1, #core.shape(x) do dims[i] = i - 1 end
  end
  local results = {}
  for i, dim in ipairs(dims) do
    local d = base.dimension(core.shape(x), dim)
    local n, step = core.shape(x)[d + 1], type(by) == "table" and by[i] or by
    if n < 3 or type(step) ~= "number" then fail("gradient supports only three and more numbers, equally far apart") end
    local function part(first, count) return raw.narrow(x, d, first, count) end
    results[i] = raw.cat({raw.div(raw.sub(part(1, 1), part(0, 1)), step), raw.div(raw.sub(part(2, n - 2), part(0, n - 2)), 2 * step),
      raw.div(raw.sub(part(n - 1, 1), part(n - 2, 1)), step)}, d)
  end
  return table.unpack(results)
end
-- Rows along a dimension that are longer than maxnorm have that length.
operators.renorm = function(a)
  local dims, d = {}, base.dimension(core.shape(a.self), a.dim)
  for i = 0, #core.shape(a.self) - 1 do
    if i ~= d then dims[#dims + 1] = i end
  end
  local length = raw.norm(a.self, a.p, dims, true)
  return raw.mul(a.self, raw.where(raw.gt(length, a.maxnorm), raw.div(a.maxnorm, raw.add(length, 1e-7)), 1.0))
end

-- ------------------------------------------------------------------------------------------ images

-- Places [n, y, x, 2] from -1 to 1, turned and moved by theta [n, 2, 3].
operators.affine_grid_generator = function(a)
  local size = a.size
  if #size ~= 4 then fail("affine_grid supports only images [n, c, y, x]") end
  local function row(n)
    local i = raw.to(base.index_row(n), "float32")
    if a.align_corners then return n == 1 and raw.mul(i, 0) or raw.sub(raw.mul(i, 2 / (n - 1)), 1) end
    return raw.sub(raw.mul(raw.add(i, 0.5), 2 / n), 1)
  end
  local x = raw.expand(base.view(row(size[4]), {1, size[4]}), {size[3], size[4]})
  local y = raw.expand(base.view(row(size[3]), {size[3], 1}), {size[3], size[4]})
  local grid = base.view(raw.stack({x, y, raw.full({size[3], size[4]}, 1, "float32")}, -1), {size[3] * size[4], 3})
  return base.view(raw.matmul(grid, raw.transpose(a.theta, 1, 2)), {size[1], size[3], size[4], 2})
end
operators.adaptive_max_pool1d = function(a)
  local x = a.self
  local to = type(a.output_size) == "table" and a.output_size[1] or a.output_size
  local y = operators.adaptive_max_pool2d{self = raw.unsqueeze(#core.shape(x) == 2 and raw.unsqueeze(x, 0) or x, -2), output_size = {1, to}}
  y = raw.squeeze(y, -2)
  return #core.shape(x) == 2 and raw.squeeze(y, 0) or y
end

-- ----------------------------------------------------------------------------------- windows, signals

-- Sums of cosines, with these factors.
local function window(a, ...)
  local n, factors = a.window_length, {...}
  if n < 2 then fail("a window of %d is not supported", n) end
  local turn = raw.mul(raw.to(base.index_row(n), "float32"), 2 * math.pi / (a.periodic == false and n - 1 or n))
  local y = raw.full({n}, factors[1], "float32")
  for i = 2, #factors do y = raw.add(y, raw.mul(raw.cos(raw.mul(turn, i - 1)), factors[i])) end
  return a.dtype and raw.to(y, a.dtype) or y
end
operators.hamming_window = function(a)
  return window(a, a.alpha == nil and 0.54 or a.alpha, -(a.beta == nil and 0.46 or a.beta))
end
operators.blackman_window = function(a) return window(a, 0.42, -0.5, 0.08) end
operators.bartlett_window = function(a)
  local n = a.window_length
  if n < 2 then fail("a window of %d is not supported", n) end
  local x = raw.mul(raw.to(base.index_row(n), "float32"), 2 / (a.periodic == false and n - 1 or n))
  local y = raw.where(raw.le(x, 1), x, raw.sub(2, x))
  return a.dtype and raw.to(y, a.dtype) or y
end
for name, is_half in pairs{fft_fftfreq = false, fft_rfftfreq = true} do
  operators[name] = function(a)
    local n, by = a.n, 1 / (a.n * (a.d == nil and 1 or a.d))
    local i = raw.to(base.index_row(is_half and n // 2 + 1 or n), "float32")
    if not is_half then i = raw.where(raw.lt(i, (n + 1) // 2), i, raw.sub(i, n)) end
    local y = raw.mul(i, by)
    return a.dtype and raw.to(y, a.dtype) or y
  end
end

-- The window in the middle of n_fft numbers.
local function whole_window(a, width)
  if a.window == nil then return raw.pad(raw.full({width}, 1, "float32"), {(a.n_fft - width) // 2, a.n_fft - width - (a.n_fft - width) // 2}) end
  local own = plain_tensor(a.window)
  local before = (a.n_fft - core.shape(own)[1]) // 2
  return raw.pad(own, {before, a.n_fft - core.shape(own)[1] - before})
end

operators.stft = function(a)
  local x = a.self
  if torch.is_complex(x) then fail("stft of complex numbers is not supported") end
  local alone, n, hop = #core.shape(x) == 1, a.n_fft, a.hop_length or a.n_fft // 4
  if alone then x = raw.unsqueeze(x, 0) end
  if a.align_to_window then fail("stft with align_to_window is not supported") end
  if a.center then x = operators.pad{self = x, pad = {n // 2, n // 2}, mode = a.pad_mode or "reflect"} end
  local frames = operators.unfold{self = x, dimension = -1, size = n, step = hop}
  frames = raw.mul(frames, whole_window(a, a.win_length or n))
  local half = a.onesided == nil or a.onesided
  local z = operators._fft_r2c{self = frames, dim = {-1}, normalization = a.normalized and 1 or 0, onesided = half}
  local function turned(v)
    v = raw.transpose(v, -1, -2)
    return alone and raw.squeeze(v, 0) or v
  end
  if a.return_complex == false then return raw.stack({turned(z.re), turned(z.im)}, -1) end
  return torch.complex(turned(z.re), turned(z.im))
end
-- The way back: the sum of the frames, divided by the sum of the squared windows at each place.
on_complex.istft = function(a)
  local z, n, hop = a.self, a.n_fft, a.hop_length or a.n_fft // 4
  if a.return_complex then fail("istft to complex numbers is not supported") end
  local shape = core.shape(z.re)
  local alone = #shape == 2
  local function frames_first(v) return raw.transpose(alone and raw.unsqueeze(v, 0) or v, -1, -2) end
  local half = a.onesided
  if half == nil then half = shape[#shape - 1] ~= n end
  if not half then fail("istft of both sides is not supported") end
  local frames = on_complex._fft_c2r{self = torch.complex(frames_first(z.re), frames_first(z.im)), dim = {-1},
    normalization = a.normalized and 1 or 2, last_dim_size = n}
  local own = whole_window(a, a.win_length or n)
  local count = core.shape(frames)[2]
  local places = base.view(constants.tensor(operators.eye{n = n}), {n, 1, n})
  local function added_up(v) return raw.squeeze(raw.conv_transpose1d(raw.transpose(v, 1, 2), places, nil, hop), 1) end
  local y = added_up(raw.mul(frames, own))
  local sum = added_up(raw.expand(base.view(raw.square(own), {1, 1, n}), {1, count, n}))
  local all = (count - 1) * hop + n
  local first = (a.center == nil or a.center) and n // 2 or 0
  local length = a.length or all - 2 * first
  if first + length > all then fail("istft of a length of %d is not supported: the frames have %d", length, all - first) end
  y = raw.div(raw.narrow(y, 1, first, length), raw.narrow(sum, 1, first, length))
  return alone and raw.squeeze(y, 0) or y
end
operators.istft = function() fail("istft takes complex numbers") end

-- ------------------------------------------------------------------------------------------- losses

local REDUCTIONS = {[0] = "none", "mean", "sum"}
local function reduced(y, reduction)
  local how = REDUCTIONS[reduction == nil and 1 or reduction]
  return how == "none" and y or how == "mean" and raw.mean(y) or raw.sum(y)
end

operators.multi_margin_loss = function(a)
  local x, p, margin = a.self, a.p == nil and 1 or a.p, a.margin == nil and 1 or a.margin
  if #core.shape(x) == 1 then x = raw.unsqueeze(x, 0) end
  local target = base.view(a.target, {core.shape(x)[1], 1})
  local own = raw.gather(x, 1, target)
  local y = raw.clamp(raw.add(raw.sub(x, own), margin), 0)
  if p == 2 then y = raw.square(y) end
  if a.weight ~= nil then y = raw.mul(y, raw.unsqueeze(raw.index_select(a.weight, 0, raw.flatten(target)), 1)) end
  local n = core.shape(x)[2]
  y = raw.where(raw.eq(raw.to(target, "int32"), base.view(base.index_row(n), {1, n})), 0.0, y)
  y = raw.div(raw.sum(y, 1), n)
  return #core.shape(a.self) == 1 and base.view(y, {}) or reduced(y, a.reduction)
end
-- The target has indices of classes up to the first -1.
operators.multilabel_margin_loss = function(a)
  local x, target = a.self, a.target
  if #core.shape(x) == 1 then x, target = raw.unsqueeze(x, 0), raw.unsqueeze(target, 0) end
  local n = core.shape(x)[2]
  local counts = raw.eq(raw.cumsum(raw.to(raw.lt(target, 0), "float32"), 1), 0)
  local index = raw.to(raw.where(counts, raw.to(target, "int32"), 0), "int32")
  local hits = raw.logical_and(raw.unsqueeze(counts, -1), raw.eq(raw.unsqueeze(index, -1), base.index_row(n)))
  local is_target = raw.any(hits, 1)
  local own = raw.gather(x, 1, index)
  local far = raw.clamp(raw.add(raw.sub(1, raw.unsqueeze(own, 2)), raw.unsqueeze(x, 1)), 0)
  far = raw.where(raw.logical_and(raw.unsqueeze(counts, 2), raw.unsqueeze(raw.logical_not(is_target), 1)), far, 0.0)
  local y = raw.div(raw.sum(far, {1, 2}), n)
  return #core.shape(a.self) == 1 and reduced(y, 2) or reduced(y, a.reduction)
end
