-- complex.lua: complex numbers of exported programs, as two tensors of floats; and Fourier transforms, which are
-- products with matrices of cosines and sines.
--
-- A complex tensor is {re =, im =}. on_complex[name](a): the operator where one of its arguments is one.
local core, base = ...
local raw, constants, fail, torch = base.raw, base.constants, base.fail, base.torch
local operators = base.torch_operators

local on_complex, known = {}, setmetatable({}, {__mode = "k"})

local function complex(re, im)
  local z = {re = re, im = im}
  known[z] = true
  return z
end

local function is_complex(v) return known[v] == true end
local function shape_of(x) return core.shape(is_complex(x) and x.re or x) end

-- Whether an argument, or one in a list, is complex.
function torch.has_complex(a)
  for _, v in pairs(a) do
    if is_complex(v) then return true end
    if type(v) == "table" and not constants.is(v) then
      for i = 1, #v do
        if is_complex(v[i]) then return true end
      end
    end
  end
  return false
end

function torch.of_complex(name, a)
  local f = on_complex[name] or fail("%s of complex numbers is not there", name)
  return f(a)
end

torch.is_complex, torch.complex = is_complex, complex

-- The arguments with the part of each complex one: a real tensor's imaginary part is `otherwise`, or itself.
local function arguments(a, part)
  local new = {}
  for key, v in pairs(a) do
    if is_complex(v) then
      new[key] = v[part]
    elseif type(v) == "table" and not constants.is(v) then
      new[key] = {}
      for i = 1, #v do new[key][i] = is_complex(v[i]) and v[i][part] or v[i] end
    else
      new[key] = v
    end
  end
  return new
end

-- ------------------------------------------------------------------------- each of the parts by itself

for name in string.gmatch("view reshape _unsafe_view flatten unflatten unsqueeze squeeze permute transpose t numpy_T mT "
  .. "expand stack cat split split_with_sizes chunk unbind select slice narrow flip roll contiguous clone alias detach "
  .. "lift_fresh_copy repeat index_select index movedim swapaxes sum mean cumsum diff tril triu neg broadcast_to "
  .. "constant_pad_nd select_scatter slice_scatter view_as reshape_as expand_as swapdims moveaxis positive ravel unfold "
  .. "diagonal linalg_diagonal diagonal_scatter tensor_split hsplit vsplit dsplit as_strided unsafe_split unsafe_chunk "
  .. "unsafe_split_with_sizes _reshape_alias lift_fresh atleast_1d atleast_2d atleast_3d zero", "%S+") do
  local f = operators[name]
  on_complex[name] = function(a)
    for _, v in ipairs(a.tensors or {}) do
      if not is_complex(v) then fail("%s of complex and of real numbers is not there", name) end
    end
    local re, im = table.pack(f(arguments(a, "re"))), table.pack(f(arguments(a, "im")))
    for i = 1, re.n do re[i] = complex(re[i], im[i]) end
    return table.unpack(re, 1, re.n)
  end
end

-- -------------------------------------------------------------------------------------- arithmetic

local function sum_or_difference(name)
  local f = operators[name]
  return function(a)
    local x, y = a.self, a.other
    local re = f{self = is_complex(x) and x.re or x, other = is_complex(y) and y.re or y, alpha = a.alpha}
    if is_complex(x) and is_complex(y) then return complex(re, f{self = x.im, other = y.im, alpha = a.alpha}) end
    local im = is_complex(x) and x.im or f{self = 0.0, other = y.im, alpha = a.alpha}
    return complex(re, raw.expand(im, core.shape(re)))
  end
end
on_complex.add, on_complex.sub = sum_or_difference("add"), sum_or_difference("sub")

-- product: of two tensors, or of a tensor and a number.
local function multiplied(x, y, product)
  if not is_complex(y) then return complex(product(x.re, y), product(x.im, y)) end
  if not is_complex(x) then return complex(product(x, y.re), product(x, y.im)) end
  return complex(raw.sub(product(x.re, y.re), product(x.im, y.im)), raw.add(product(x.re, y.im), product(x.im, y.re)))
end
on_complex.mul = function(a) return multiplied(a.self, a.other, raw.mul) end
for name, second in pairs{matmul = "other", mm = "mat2", bmm = "mat2"} do
  on_complex[name] = function(a) return multiplied(a.self, a[second], raw.matmul) end
end

local function conjugate(z) return complex(z.re, raw.neg(z.im)) end
torch.conjugate = conjugate
for _, name in ipairs{"mH", "matrix_H", "adjoint"} do
  on_complex[name] = function(a) return conjugate(on_complex.mT(a)) end
end
on_complex.div = function(a)
  local x, y = a.self, a.other
  if not is_complex(y) then return complex(raw.div(x.re, y), raw.div(x.im, y)) end
  local size = raw.add(raw.square(y.re), raw.square(y.im))
  return multiplied(multiplied(x, conjugate(y), raw.mul), size, function(z, by) return raw.div(z, by) end)
end
on_complex.abs = function(a) return raw.norm(raw.stack({a.self.re, a.self.im}, -1), 2, -1) end
on_complex.angle = function(a) return operators.atan2{self = a.self.im, other = a.self.re} end
on_complex.exp = function(a)
  local size = raw.exp(a.self.re)
  return complex(raw.mul(size, raw.cos(a.self.im)), raw.mul(size, raw.sin(a.self.im)))
end

local function same(a) return a.self end
for _, name in ipairs{"conj", "_conj", "conj_physical"} do
  operators[name] = same
  on_complex[name] = function(a) return conjugate(a.self) end
end
for _, name in ipairs{"resolve_conj", "resolve_neg", "to", "_to_copy"} do
  operators[name] = operators[name] or same
  on_complex[name] = function(a)
    if a.dtype and a.dtype ~= "complex64" then fail("complex numbers become real ones by real, imag or abs") end
    return a.self
  end
end

-- -------------------------------------------------------------------------------- from and to floats

local function zeros_of(x) return raw.full(core.shape(x), 0, core.type(x)) end

-- Tensors of one number.
for name in string.gmatch("full zeros ones empty new_full new_zeros new_ones new_empty full_like zeros_like ones_like empty_like "
  .. "empty_strided empty_permuted scalar_tensor", "%S+") do
  local f = operators[name]
  local function of_complex(a)
    if a.dtype ~= nil and a.dtype ~= "complex64" then return f(arguments(a, "re")) end
    local re = constants.tensor(f(setmetatable({dtype = "float32"}, {__index = arguments(a, "re")})))
    return complex(re, zeros_of(re))
  end
  on_complex[name] = of_complex
  operators[name] = function(a) return a.dtype == "complex64" and of_complex(a) or f(a) end
end

for name, key in pairs{fill = "value", copy = "src"} do
  local f = operators[name]
  on_complex[name] = function(a)
    local v = a[key]
    if not is_complex(a.self) then fail("a real tensor cannot take complex numbers") end
    if not is_complex(v) then return complex(f{self = a.self.re, [key] = v}, zeros_of(a.self.im)) end
    return complex(f{self = a.self.re, [key] = v.re}, f{self = a.self.im, [key] = v.im})
  end
end

operators.complex = function(a) return complex(a.real, a.imag) end
operators.polar = function(a)
  return complex(raw.mul(a.abs, raw.cos(a.angle)), raw.mul(a.abs, raw.sin(a.angle)))
end
operators.view_as_complex = function(a) return complex(raw.select(a.self, -1, 0), raw.select(a.self, -1, 1)) end
on_complex.view_as_real = function(a) return raw.stack({a.self.re, a.self.im}, -1) end
operators.real, on_complex.real = same, function(a) return a.self.re end
on_complex.imag = function(a) return a.self.im end
for _, name in ipairs{"to", "_to_copy"} do
  local f = operators[name]
  operators[name] = function(a)
    if a.dtype ~= "complex64" then return f(a) end
    local x = raw.to(a.self, "float32")
    return complex(x, zeros_of(x))
  end
end

-- ------------------------------------------------------------------------------- Fourier transforms

local MOST_POINTS = 46340 -- whose square is a whole number of 32 bits

-- Cosines and sines of 2 pi j k / n for j of `rows`, k of `columns`: of angles within half a turn, which floats hold
-- best.
local function turns(rows, columns, n)
  if n > MOST_POINTS then fail("a Fourier transform of %d points is not there: at most %d", n, MOST_POINTS) end
  local jk = raw.mul(base.view(raw.arange(rows), {rows, 1}), base.view(raw.arange(columns), {1, columns}))
  local whole = raw.to(raw.add(raw.mul(raw.to(jk, "float32"), 1 / n), 0.5), "int32")
  local angle = raw.mul(raw.to(raw.sub(jk, raw.mul(whole, n)), "float32"), 2 * math.pi / n)
  return raw.cos(angle), raw.sin(angle)
end

local along = base.product_along

-- Along dimension d, of a complex tensor.
local function transformed(z, d, inverse)
  local n = core.shape(z.re)[d + 1]
  local cos, sin = turns(n, n, n)
  local a, b = along(z.im, d, sin), along(z.re, d, sin)
  local re, im = along(z.re, d, cos), along(z.im, d, cos)
  if inverse then return complex(raw.sub(re, a), raw.add(im, b)) end
  return complex(raw.add(re, a), raw.sub(im, b))
end

-- Of a real tensor; one_sided: the first half, of which the other one is the mirror image.
local function transformed_real(x, d, one_sided)
  local n = core.shape(x)[d + 1]
  local cos, sin = turns(one_sided and n // 2 + 1 or n, n, n)
  return complex(along(x, d, cos), raw.neg(along(x, d, sin)))
end

-- n real numbers of one half: each but the first, and but the middle of an even n, stands for two.
local function real_of_half(z, d, n)
  local m = n // 2 + 1
  local cos, sin = turns(n, m, n)
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

-- PyTorch's functions: norm says where the factor stands.
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

-- What takes complex numbers alone is an operator that is there.
for name in pairs(on_complex) do
  operators[name] = operators[name] or function() fail("%s takes complex numbers", name) end
end
