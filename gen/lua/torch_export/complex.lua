-- complex.lua: complex numbers of exported programs, as two tensors of floats.
--
-- A complex tensor is {re =, im =}. on_complex[name](a): the operator where one of its arguments is one.
local core, base = ...
local raw, constants, fail, torch = base.raw, base.constants, base.fail, base.torch
local operators = base.torch_operators

local on_complex, known = torch.definitions("on complex numbers"), setmetatable({}, {__mode = "k"})
torch.on_complex = on_complex

local function complex(re, im)
  local z = {re = re, im = im}
  known[z] = true
  return z
end

local function is_complex(v) return known[v] == true end
local function shape_of(x) return core.shape(is_complex(x) and x.re or x) end

-- Whether an argument, or one in a list, is complex, or the result is to be.
function torch.has_complex(a)
  if a.dtype == "complex64" then return true end
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
  local f = on_complex[name] or fail("%s of complex numbers is not supported", name)
  return f(a)
end

torch.is_complex, torch.complex = is_complex, complex

-- The arguments with the part of each complex one: a real tensor's imaginary part is `otherwise`, or itself.
-- They are looked up as they are read: run.lua notes which ones are.
local function arguments(a, part)
  return setmetatable({}, {__index = function(_, key)
    local v = a[key]
    if is_complex(v) then return v[part] end
    if type(v) ~= "table" or constants.is(v) then return v end
    local list = {}
    for i = 1, #v do list[i] = is_complex(v[i]) and v[i][part] or v[i] end
    return list
  end})
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
      if not is_complex(v) then fail("%s of complex and of real numbers is not supported", name) end
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

-- Of complex numbers each product has the parts of all operands, in all ways.
on_complex.einsum = function(a)
  local re, im
  local function add(i, list, turns)
    if i > #a.tensors then
      local y = raw.einsum(a.equation, table.unpack(list))
      if turns % 4 >= 2 then y = raw.neg(y) end
      if turns % 2 == 0 then re = re and raw.add(re, y) or y else im = im and raw.add(im, y) or y end
      return
    end
    local x = a.tensors[i]
    list[i] = is_complex(x) and x.re or x
    add(i + 1, list, turns)
    if is_complex(x) then
      list[i] = x.im
      add(i + 1, list, turns + 1)
    end
  end
  add(1, {}, 0)
  return complex(re, im)
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
for _, name in ipairs{"conj", "_conj", "conj_physical", "_conj_physical"} do
  operators[name] = same
  on_complex[name] = function(a) return conjugate(a.self) end
end
for _, name in ipairs{"resolve_conj", "resolve_neg"} do operators[name], on_complex[name] = same, same end

-- -------------------------------------------------------------------------------- from and to floats

local function zeros_of(x) return raw.full(core.shape(x), 0, core.type(x)) end

for _, name in ipairs{"to", "_to_copy"} do
  on_complex[name] = function(a)
    if a.dtype and a.dtype ~= "complex64" then fail("complex numbers become real ones by real, imag or abs") end
    if is_complex(a.self) then return a.self end
    local x = raw.to(a.self, "float32")
    return complex(x, zeros_of(x))
  end
end

-- Tensors of one number.
for name in string.gmatch("full zeros ones empty new_full new_zeros new_ones new_empty full_like zeros_like ones_like empty_like "
  .. "empty_strided empty_permuted scalar_tensor", "%S+") do
  local f = operators[name]
  on_complex[name] = function(a)
    if a.dtype ~= nil and a.dtype ~= "complex64" then return f(arguments(a, "re")) end
    local re = constants.tensor(f(setmetatable({dtype = "float32"}, {__index = arguments(a, "re")})))
    return complex(re, zeros_of(re))
  end
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
-- Operators that take only complex numbers.
for _, name in ipairs{"angle", "view_as_real", "imag"} do
  operators[name] = function() fail("%s takes complex numbers", name) end
end
torch.zeros_of, torch.shape_of_either = zeros_of, shape_of
