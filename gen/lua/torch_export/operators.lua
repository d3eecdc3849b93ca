-- operators.lua: the operators of exported programs (torch.ops.aten), by the functions of F.
--
-- operators[name](a): a holds the node's arguments under their names in aten's schema; arguments at
-- their default are not there. Returns the node's results. name: without the overload, unless an
-- overload has a meaning of its own. on_constants[name](a): the same where every tensor among the
-- arguments is a constant (constants.lua); nil where that has no form.
local core, base = ...
local raw, constants, fail, torch = base.raw, base.constants, base.fail, base.torch

-- A table in which nothing is defined twice. absent(): called once, when something is read that is not there.
function torch.definitions(what, absent)
  local defined = {}
  return setmetatable({}, {
    __index = function(_, name)
      local f = defined[name]
      if f == nil and absent then
        local load = absent
        absent = nil
        load()
        f = defined[name]
      end
      return f
    end,
    __newindex = function(_, name, f)
      if defined[name] ~= nil then fail("torch_export: %s is defined twice %s", name, what) end
      defined[name] = f
    end,
    __pairs = function() return pairs(defined) end,
  })
end

-- The operators that few models have are in rare.lua.
local operators = torch.definitions("as an operator", core.run_rare_archive_files)
local on_constants = torch.definitions("on constants")
base.torch_operators, base.torch_on_constants = operators, on_constants

local is_tensor = core.is_tensor

-- A function of ours whose arguments are these, in this order.
local function calls(name, ...)
  local order = {...}
  local f = raw[name]
  return function(a)
    local given = {}
    for i, key in ipairs(order) do given[i] = a[key] end
    return f(table.unpack(given, 1, #order))
  end
end

torch.calls = calls

for _, name in ipairs{"relu", "tanh", "sigmoid", "silu", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "erfinv", "lgamma", "digamma",
  "neg", "abs", "erf", "expm1", "log1p", "logical_not", "detach", "relu6", "hardswish", "hardsigmoid",
  "mish", "softsign", "square"} do
  operators[name] = calls(name, "self")
end
operators.log_sigmoid = calls("logsigmoid", "self")

for _, name in ipairs{"logical_and", "logical_or"} do operators[name] = calls(name, "self", "other") end
local function is_bool(v) return type(v) == "boolean" or is_tensor(v) and core.type(v) == "bool" end
-- Of whole numbers of 32 bits the bits that both have, each by a quotient; of a number only its own bits.
local function common_bits(x, y)
  local sum
  if not is_tensor(x) then x, y = y, x end
  for k = 0, 31 do
    if is_tensor(y) or (y >> k) & 1 == 1 then
      local unit = 1 << math.min(k, 30)
      local function bit(v)
        if k == 31 then return raw.lt(v, 0) end
        return raw.eq(raw.remainder(raw.floor_divide(v, unit), 2), 1)
      end
      local both = is_tensor(y) and raw.logical_and(bit(x), bit(y)) or bit(x)
      local term = raw.where(both, raw.full({}, unit, "int32"), raw.full({}, 0, "int32"))
      if k == 31 then term = raw.mul(term, -2) end
      sum = sum and raw.add(sum, term) or term
    end
  end
  return sum or raw.mul(x, 0)
end
-- Bit by bit: of bools the operator of truths, of whole numbers f(x, y, the common bits).
local function of_bits(of_truths, f)
  return function(a)
    local x, y = a.self, a.other
    if is_bool(x) and is_bool(y) then return of_truths(x, y) end
    local function is_float(v) return is_tensor(v) and base.is_floating(v) or math.type(v) == "float" end
    if is_float(x) or is_float(y) then fail("bitwise operators support whole numbers and bools only") end
    local kind = is_tensor(x) and not is_bool(x) and core.type(x) or core.type(y)
    local function whole(v)
      if type(v) == "boolean" then return v and 1 or 0 end
      return is_tensor(v) and raw.to(v, "int32") or v
    end
    x, y = whole(x), whole(y)
    return raw.to(f(x, y, common_bits(x, y)), kind)
  end
end
for _, name in ipairs{"and", "or"} do
  operators["bitwise_" .. name] = of_bits(raw["logical_" .. name], function(x, y, common)
    return name == "and" and common or raw.sub(raw.add(x, y), common)
  end)
  operators["__" .. name .. "__"] = operators["bitwise_" .. name]
end
torch.of_bits = of_bits
operators.bitwise_not = function(a)
  return is_bool(a.self) and raw.logical_not(a.self) or raw.sub(-1, a.self)
end

local RANK = base.type_ranks

-- Both in the type that PyTorch computes in: a tensor without dimensions, or a number, changes the kind of
-- a type (of bools, of whole numbers, of floats) only.
local function promoted(x, y)
  local function kind(v)
    if is_tensor(v) then return core.type(v), #core.shape(v) == 0 and 2 or 3 end
    return math.type(v) == "float" and "float32" or type(v) == "boolean" and "bool" or "int64", 1
  end
  local function class(t) return t == "bool" and 1 or RANK[t] < 4 and 2 or 3 end
  local a, weight_a = kind(x)
  local b, weight_b = kind(y)
  if a == b then return x, y end
  local result
  if class(a) ~= class(b) then
    result = class(a) > class(b) and a or b
  elseif weight_a ~= weight_b then
    result = weight_a > weight_b and a or b
  else
    result = RANK[a] > RANK[b] and a or b
  end
  local function to(v, own)
    if is_tensor(v) and own ~= result then return raw.to(v, result) end
    if type(v) == "boolean" then return v and 1 or 0 end
    return v
  end
  return to(x, a), to(y, b)
end
torch.promoted = promoted

-- Two numbers, or a tensor and another tensor or a number, or the other way round.
-- of_truths: the function of two bools.
local function binary(name, of_numbers, of_truths)
  local f = raw[name]
  return function(a)
    local x, y = promoted(a.self, a.other)
    if of_truths and is_tensor(x) and is_tensor(y) and core.type(x) == "bool" and core.type(y) == "bool" then
      return of_truths(x, y)
    end
    if a.alpha ~= nil and a.alpha ~= 1 then
      y = is_tensor(y) and raw.mul(y, a.alpha) or y * a.alpha
    end
    if not is_tensor(x) and not is_tensor(y) then return of_numbers(x, y) end
    return f(x, y)
  end
end
for _, name in ipairs{"lt", "le", "gt", "ge", "maximum", "minimum"} do
  local f = raw[name]
  operators[name] = function(a) return f(promoted(a.self, a.other)) end
end
-- C compilers warn where a truth is a comparison with infinity.
local MOST = 3.4028234663852886e38
operators.eq = function(a)
  if a.other == math.huge then return raw.gt(a.self, MOST) end
  if a.other == -math.huge then return raw.lt(a.self, -MOST) end
  return raw.eq(promoted(a.self, a.other))
end
operators.ne = function(a)
  local infinite = a.other == math.huge or a.other == -math.huge
  return infinite and raw.logical_not(operators.eq(a)) or raw.ne(promoted(a.self, a.other))
end
operators.add = binary("add", function(x, y) return x + y end, raw.logical_or)
operators.sub = binary("sub", function(x, y) return x - y end)
operators.mul = binary("mul", function(x, y) return x * y end, raw.logical_and)
operators.rsub = function(a)
  return operators.sub{self = a.other, other = a.self, alpha = a.alpha}
end

-- x to the power y of whole numbers, 0 or more, by squares: a factor for each bit of y that is 1. No square is computed that
-- no later bit needs, for it might be too large.
local function whole_power(x, y, kind)
  local function number(v) return raw.full({}, v, kind) end
  if not is_tensor(y) then
    local product = raw.full({}, 1, kind)
    while y > 0 do
      if y % 2 == 1 then product = raw.mul(product, x) end
      y = y // 2
      if y > 0 then x = raw.mul(x, x) end
    end
    return product
  end
  local product, rest = number(1), y
  for bit = 0, 5 do
    product = raw.mul(product, raw.where(raw.eq(raw.remainder(rest, 2), 1), x, number(1)))
    rest = raw.floor_divide(rest, 2)
    if bit < 5 then
      x = raw.where(raw.gt(rest, 0), x, number(1))
      x = raw.mul(x, x)
    end
  end
  return product
end
torch.whole_power = whole_power

-- Of whole numbers a whole number. To a negative power only 1 and -1 are not 0.
operators.pow = function(a)
  local x, y = a.self, a.exponent
  local function is_whole(v) return is_tensor(v) and not base.is_floating(v) or math.type(v) == "integer" end
  if not is_tensor(x) and not is_tensor(y) or not (is_whole(x) and is_whole(y)) then return raw.pow(x, y) end
  local kind = is_tensor(x) and core.type(x) or core.type(y)
  if not is_tensor(x) then x = raw.full({}, x, kind) end
  if not is_tensor(y) then
    if y < 0 then fail("pow: whole numbers to negative powers are not supported") end
    return raw.add(whole_power(x, y, kind), raw.mul(x, 0))
  end
  local is_unit = raw.logical_or(raw.eq(x, 1), raw.eq(x, -1))
  local to_positive = raw.where(raw.logical_and(raw.lt(y, 0), raw.logical_not(is_unit)), raw.full({}, 0, kind), x)
  return whole_power(to_positive, raw.abs(y), kind)
end
operators.reciprocal = function(a) return raw.div(1, a.self) end
operators.hardtanh = function(a) return raw.clamp(a.self, a.min_val or -1, a.max_val or 1) end
operators.gelu = calls("gelu", "self", "approximate")
operators.leaky_relu = calls("leaky_relu", "self", "negative_slope")
operators.softplus = calls("softplus", "self", "beta", "threshold")
operators.prelu = calls("prelu", "self", "weight")
operators.glu = calls("glu", "self", "dim")

operators.where = function(a) return raw.where(a.condition, promoted(a.self, a.other)) end
-- `src` in the shape and type of `self`; `value` at every place of it.
operators.copy = function(a)
  return raw.to(raw.expand(a.src, core.shape(a.self)), core.type(a.self))
end
operators.fill = function(a)
  local v = a.value
  if type(v) == "boolean" then v = v and 1 or 0 end
  if not is_tensor(v) then return raw.full(core.shape(a.self), v, core.type(a.self)) end
  return raw.to(raw.expand(base.view(v, {}), core.shape(a.self)), core.type(a.self))
end
operators.zero = function(a) return raw.full(core.shape(a.self), 0, core.type(a.self)) end
operators.isinf = function(a) return raw.gt(raw.abs(a.self), MOST) end
operators.isnan = function(a) return raw.ne(a.self, a.self) end
operators.linalg_vector_norm = function(a)
  local dims = a.dim and #a.dim > 0 and a.dim or nil
  return raw.norm(a.dtype and raw.to(a.self, a.dtype) or a.self, a.ord or 2, dims, a.keepdim)
end
operators.masked_fill = function(a)
  local value = a.value
  if core.type(a.self) == "bool" and not is_tensor(value) then
    if value == true or type(value) == "number" and value ~= 0 then return raw.logical_or(a.self, a.mask) end
    return raw.logical_and(a.self, raw.logical_not(a.mask))
  end
  if is_tensor(value) then return raw.where(a.mask, raw.to(base.view(value, {}), core.type(a.self)), a.self) end
  if type(value) == "boolean" then value = value and 1 or 0 end
  return raw.masked_fill(a.self, a.mask, value)
end

-- ---------------------------------------------------------------------------------------- products

-- By view: the tensor that it is a view of, through all views between. By transposed matrix: the matrix.
local origin, transposed = setmetatable({}, {__mode = "k"}), setmetatable({}, {__mode = "k"})

local function linear(x, weight, bias) return base.adapted(base.Linear, x, weight, bias) or raw.linear(x, weight, bias) end

operators.linear = function(a) return linear(a.input, a.weight, a.bias) end
operators.matmul = calls("matmul", "self", "other")
operators.bmm = function(a) return raw.matmul(a.self, a.mat2) end

-- x times the transposed weight is a linear layer; if x is a view of one with more dimensions, a layer
-- of that.
local function layer(x, weight, bias)
  local whole = origin[x]
  local shape = whole and core.shape(whole)
  if not shape or #shape < 3 or shape[#shape] ~= core.shape(x)[2] then return linear(x, weight, bias) end
  local y = linear(whole, weight, bias)
  local flat = base.view(y, {core.shape(x)[1], core.shape(weight)[1]})
  origin[flat] = y
  return flat
end

operators.mm = function(a)
  local weight = transposed[a.mat2]
  return weight and layer(a.self, weight) or raw.matmul(a.self, a.mat2)
end

-- beta self + alpha mat1 mat2
local function added_product(a)
  local plain = (a.alpha == nil or a.alpha == 1) and (a.beta == nil or a.beta == 1)
  if plain and #core.shape(a.self) == 1 and a.mat2 then
    local y = base.adapted(base.Conv1D, a.mat1, a.mat2, a.self)
    if y then return y end
    if core.parts(a.mat2) then return base.project(a.mat1, a.mat2, a.self, true) end
  end
  local weight = transposed[a.mat2]
  if plain and weight and #core.shape(a.self) == 1 then return layer(a.mat1, weight, a.self) end
  local y = raw.matmul(a.mat1 or a.batch1, a.mat2 or a.batch2)
  if a.alpha ~= nil and a.alpha ~= 1 then y = raw.mul(y, a.alpha) end
  local x = a.self
  if a.beta ~= nil and a.beta ~= 1 then x = raw.mul(x, a.beta) end
  return raw.add(y, x)
end
operators.addmm, operators.baddbmm = added_product, added_product

operators.conv2d = calls("conv2d", "input", "weight", "bias", "stride", "padding", "dilation", "groups")
operators.conv1d = calls("conv1d", "input", "weight", "bias", "stride", "padding", "dilation", "groups")
operators.max_pool2d = calls("max_pool2d", "self", "kernel_size", "stride", "padding", "dilation",
  "ceil_mode")
operators.avg_pool2d = calls("avg_pool2d", "self", "kernel_size", "stride", "padding", "ceil_mode",
  "count_include_pad", "divisor_override")
operators.adaptive_avg_pool2d = calls("adaptive_avg_pool2d", "self", "output_size")
operators._adaptive_avg_pool2d = operators.adaptive_avg_pool2d

-- [b, h, t, d] of one with fewer or more dimensions.
local function four(x)
  local shape = core.shape(x)
  local n = #shape
  if n == 4 then return x end
  if n < 2 then fail("attention takes tensors of at least two dimensions") end
  local lead = 1
  for i = 1, n - 3 do lead = lead * shape[i] end
  return base.view(x, {lead, n > 2 and shape[n - 2] or 1, shape[n - 1], shape[n]})
end

-- A known mask becomes the keys that it forbids: none, those after a query, or those far from it.
operators.scaled_dot_product_attention = function(a)
  local mask, causal, window = a.attn_mask, a.is_causal, nil
  if constants.is(mask) then
    local shown = constants.shown(mask)
    local seen, far = nil, nil
    if shown then seen, far = constants.seen(shown) end
    if seen and not (causal and seen ~= "all") then
      mask, causal, window = nil, causal or seen == "causal", far
    else
      mask = constants.compact(mask.type == "bool" and shown or mask)
    end
  end
  local shape = core.shape(a.query)
  local y = raw.scaled_dot_product_attention(four(a.query), four(a.key), four(a.value), mask, a.dropout_p,
    causal, a.scale, nil, nil, nil, window)
  local sizes = table.move(shape, 1, #shape, 1, {})
  sizes[#sizes] = core.shape(a.value)[#core.shape(a.value)]
  return base.view(y, sizes)
end
for _, name in ipairs{"_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
  "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
  "_scaled_dot_product_attention_math"} do
  operators[name] = function(a)
    if a.attn_bias ~= nil then a.attn_mask = a.attn_bias end
    return operators.scaled_dot_product_attention(a)
  end
end
-- Of patterns.lua.
operators.tpgen_rotary = function(a) return raw.rotary(a.x, a.cos, a.sin) end

-- ------------------------------------------------------------------------- sums along dimensions

local function listed(v)
  if type(v) == "number" then return {v} end
  return v
end

local function over(name)
  local f = raw[name]
  return function(a)
    local dims = listed(a.dim)
    if dims and #dims == 0 then dims = nil end
    -- A sum of whole numbers is of 64 bits.
    local x = name == "sum" and not a.dtype and core.type(a.self) == "int32" and raw.to(a.self, "int64") or a.self
    local y = f(x, dims, a.keepdim)
    return a.dtype and raw.to(y, a.dtype) or y
  end
end
operators.sum, operators.mean = over("sum"), over("mean")
operators.amax, operators.amin = over("amax"), over("amin")
operators.logsumexp = over("logsumexp")

operators.var = function(a)
  local correction = a.correction
  if correction == nil then correction = a.unbiased == false and 0 or 1 end
  return raw.var(a.self, listed(a.dim), nil, a.keepdim, correction)
end

operators.any = function(a)
  return raw.any(a.self, listed(a.dim), a.keepdim)
end

local function softmax(name)
  local f = raw[name]
  return function(a)
    local to = a.dtype or a.half_to_float and "float32"
    return f(to and raw.to(a.self, to) or a.self, a.dim)
  end
end
operators.softmax, operators._softmax = softmax("softmax"), softmax("softmax")
operators.log_softmax, operators._log_softmax = softmax("log_softmax"), softmax("log_softmax")

operators.layer_norm = function(a)
  return raw.layer_norm(a.input, a.normalized_shape, a.weight, a.bias, a.eps)
end
-- Also the mean and 1 / the deviation, which only a backward reads.
operators.native_layer_norm = operators.layer_norm
operators.rms_norm = calls("rms_norm", "input", "normalized_shape", "weight", "eps")
operators.group_norm = calls("group_norm", "input", "num_groups", "weight", "bias", "eps")

-- In training form the buffers follow the batches.
operators.batch_norm = function(a)
  return raw.batch_norm(a.input, a.running_mean, a.running_var, a.weight, a.bias, a.training or false,
    a.momentum, a.eps)
end
operators._native_batch_norm_legit_no_training = operators.batch_norm

operators.diff = function(a)
  if a.n ~= nil and a.n ~= 1 then fail("diff with n = %d is not supported", a.n) end
  local x, parts = a.self, {}
  for _, part in ipairs{a.prepend or false, x, a.append or false} do
    if part then parts[#parts + 1] = part end
  end
  if #parts > 1 then x = raw.cat(parts, a.dim or -1) end
  local shape = core.shape(x)
  local d = base.dimension(shape, a.dim or -1)
  local n = shape[d + 1] - 1
  return raw.sub(raw.narrow(x, d, 1, n), raw.narrow(x, d, 0, n))
end

-- ------------------------------------------------------------------------------------ shapes, parts

operators.view = function(a)
  if a.dtype ~= nil then
    if a.dtype == core.type(a.self) then return a.self end
    fail("the bytes of one type cannot be viewed as another type")
  end
  local y = raw.reshape(a.self, a.size or a.shape)
  local first = origin[a.self] or a.self
  if base.same_shape(core.shape(first), core.shape(y)) then return first end
  if not rawequal(y, a.self) then origin[y] = first end
  return y
end
operators.reshape, operators._unsafe_view = operators.view, operators.view
operators.flatten = calls("flatten", "self", "start_dim", "end_dim")
operators.unflatten = calls("unflatten", "self", "dim", "sizes")
operators.unsqueeze = calls("unsqueeze", "self", "dim")
operators.squeeze = calls("squeeze", "self", "dim")
operators.permute = function(a)
  local y = raw.permute(a.self, a.dims)
  if #a.dims == 2 and a.dims[1] % 2 == 1 then transposed[y] = a.self end
  return y
end
operators.transpose = function(a)
  local y = raw.transpose(a.self, a.dim0, a.dim1)
  if #core.shape(y) == 2 and (a.dim0 - a.dim1) % 2 == 1 then transposed[y] = a.self end
  return y
end
operators.t = function(a)
  if #core.shape(a.self) < 2 then return a.self end
  return operators.transpose{self = a.self, dim0 = 0, dim1 = 1}
end
operators.numpy_T = function(a)
  local dims = {}
  for i = 1, #core.shape(a.self) do table.insert(dims, 1, i - 1) end
  return operators.permute{self = a.self, dims = dims}
end
operators.expand = function(a) return raw.expand(a.self, a.size) end
-- A tensor of no elements is a constant, and is nothing here.
operators.cat = function(a)
  local parts, dim = {}, a.dim or 0
  for _, x in ipairs(a.tensors) do
    if not constants.is(x) or base.elements(x.shape) > 0 then
      parts[#parts + 1] = constants.is(x) and constants.tensor(x) or x
    end
  end
  local kind = core.type(parts[1])
  for _, x in ipairs(parts) do
    if RANK[core.type(x)] > RANK[kind] then kind = core.type(x) end
  end
  for i, x in ipairs(parts) do parts[i] = raw.to(x, kind) end
  return #parts == 1 and parts[1] or raw.cat(parts, dim)
end
operators.stack = function(a) return raw.stack(a.tensors, a.dim or 0) end
operators.split = function(a)
  return raw.split(a.self, a.split_size or a.split_sizes, a.dim or 0)
end
operators.split_with_sizes = operators.split
operators.chunk = function(a) return raw.chunk(a.self, a.chunks, a.dim or 0) end
operators.unbind = function(a)
  local d, parts = a.dim or 0, {}
  for i = 1, core.shape(a.self)[base.dimension(core.shape(a.self), d) + 1] do
    parts[i] = raw.select(a.self, d, i - 1)
  end
  return table.unpack(parts)
end
operators.select = calls("select", "self", "dim", "index")
operators["repeat"] = function(a) return raw.tile(a.self, a.repeats) end
operators.flip = function(a) return raw.flip(a.self, a.dims) end
operators.roll = calls("roll", "self", "shifts", "dims")
operators.tril = calls("tril", "self", "diagonal")
operators.triu = calls("triu", "self", "diagonal")
operators.constant_pad_nd = function(a) return raw.pad(a.self, a.pad, nil, torch.value_for(a.self, a.value)) end

-- The first index and the number of indices that a slice takes.
local function slice_of(size, first, last)
  first, last = first or 0, last or math.maxinteger
  if first < 0 then first = math.max(first + size, 0) end
  if last < 0 then last = last + size end
  first, last = math.min(first, size), math.min(last, size)
  return first, math.max(last - first, 0)
end

torch.slice_of = slice_of

operators.slice = function(a)
  local shape, d = core.shape(a.self), a.dim or 0
  local first, count = slice_of(shape[base.dimension(shape, d) + 1], a.start, a["end"])
  if count == 0 then return constants.full(base.resized(shape, base.dimension(shape, d), 0), 0, core.type(a.self)) end
  local x = raw.narrow(a.self, d, first, count)
  if a.step and a.step ~= 1 then
    return core.append("every", {x}, {dims = {base.dimension(shape, d)}, step = a.step,
      sizes = {E = (count + a.step - 1) // a.step}})
  end
  return x
end

-- ------------------------------------------------------------------------------------- by indices

-- The row of padding_idx gets no gradient.
-- The gradient of each of these rows is divided by how often they have its index.
local function by_frequency(y, index, rows)
  local shape = core.shape(index)
  local counts = raw.bincount(base.view(index, {base.elements(shape)}), nil, rows)
  local times, fixed = raw.embedding(index, raw.unsqueeze(raw.to(counts, "float32"), -1)), raw.detach(y)
  return raw.add(fixed, raw.div(raw.sub(y, fixed), times))
end
operators.embedding = function(a)
  local padding = a.padding_idx or -1
  local adapted = padding < 0 and base.adapted(base.Embedding, a.indices, a.weight)
  local y = adapted or raw.embedding(a.indices, a.weight)
  if a.scale_grad_by_freq then
    if adapted then fail("adapters of an embedding with scale_grad_by_freq are not supported") end
    y = by_frequency(y, a.indices, core.shape(a.weight)[1])
  end
  if padding < 0 then return y end
  return raw.where(raw.unsqueeze(raw.eq(a.indices, padding), -1), raw.detach(y), y)
end
operators.index_select = calls("index_select", "self", "dim", "index")
operators.gather = calls("gather", "self", "dim", "index")


-- ------------------------------------------------------------------------------- types; no change

operators.to = function(a)
  local kind = a.dtype or a.other ~= nil and core.type(a.other)
  local y = kind and raw.to(a.self, kind) or a.self
  return core.type(a.self) == "bool" and torch.note_small(y) or y
end
operators._to_copy = operators.to
local function same(a) return a.self end
for _, name in ipairs{"alias", "contiguous", "clone", "lift_fresh_copy"} do operators[name] = same end
operators["torch.ops.prims.copy_strided.default"] = function(a) return a.a end -- of prims, where core ATen has written a change in place anew
operators._assert_tensor_metadata = function() end
operators.dropout = function(a)
  local x, p = a.input or a.self, a.p
  return a.train and raw.dropout(x, p) or x
end

-- Numbers that an operator makes of sizes.
local function numbers(f) return function(a) return f(a.a, a.b) end end
operators["_operator.add"] = numbers(function(x, y) return x + y end)
operators["_operator.sub"] = numbers(function(x, y) return x - y end)
operators["_operator.mul"] = numbers(function(x, y) return x * y end)
operators["_operator.floordiv"] = numbers(function(x, y) return x // y end)
operators["_operator.truediv"] = numbers(function(x, y) return x / y end)
operators["_operator.mod"] = numbers(function(x, y) return x % y end)
operators["_operator.neg"] = numbers(function(x) return -x end)
operators["_operator.pow"] = numbers(function(x, y) return x ^ y end)
operators["torch.sym_max"] = numbers(math.max)
operators["torch.sym_min"] = numbers(math.min)
operators.sym_size = function(a)
  local shape = constants.is(a.self) and a.self.shape or core.shape(a.self)
  return shape[(a.dim < 0 and a.dim + #shape or a.dim) + 1]
end

-- --------------------------------------------------------------------------- tensors of no others

local function number_type(...)
  for _, v in ipairs{...} do
    if math.type(v) == "float" then return "float32" end
  end
  return "int64"
end

local function shape_of(x) return constants.is(x) and x.shape or core.shape(x) end
local function type_of(x) return constants.is(x) and x.type or core.type(x) end

operators.arange = function(a)
  local first, last, step = a.start or 0, a["end"], a.step or 1
  local count = math.tointeger(math.ceil((last - first) / step))
  if not count or count < 1 then fail("arange needs at least one number") end
  return constants.arange(first, count, step, a.dtype or number_type(first, last, step))
end
-- A step is the same for all of them, but for its rounding.
operators.linspace = function(a)
  local first, last, count = a.start, a["end"], a.steps
  if type(first) ~= "number" or type(last) ~= "number" then fail("linspace between tensors is not supported") end
  if count < 1 then fail("linspace needs at least one number") end
  return constants.arange(first + 0.0, count, count > 1 and (last - first) / (count - 1) or 0.0, a.dtype or "float32")
end
-- All elements a number, which may be one that a tensor holds.
local function filled(size, v, kind)
  if is_tensor(v) then return raw.to(raw.expand(base.view(v, {}), size), kind) end
  return constants.full(size, v, kind)
end
operators.full = function(a)
  local v = a.fill_value
  return filled(a.size, v, a.dtype or type(v) == "boolean" and "bool" or is_tensor(v) and core.type(v) or number_type(v))
end
operators.scalar_tensor = function(a) return filled({}, a.s, a.dtype or "float32") end
operators.zeros = function(a) return constants.full(a.size, 0, a.dtype or "float32") end
operators.ones = function(a) return constants.full(a.size, 1, a.dtype or "float32") end
operators.eye = function(a)
  local sizes = {a.n, a.m or a.n}
  local function counted(d)
    return constants.expand(constants.unsqueeze(constants.arange(0, sizes[d], 1, "int64"), 2 - d), sizes)
  end
  local kind = a.dtype or "float32"
  return constants.where(constants.eq(counted(1), counted(2)), constants.full(sizes, 1, kind), constants.full(sizes, 0, kind))
end
operators.full_like = function(a)
  return filled(shape_of(a.self), a.fill_value, a.dtype or type_of(a.self))
end
operators.zeros_like = function(a)
  return constants.full(shape_of(a.self), 0, a.dtype or type_of(a.self))
end
operators.ones_like = function(a)
  return constants.full(shape_of(a.self), 1, a.dtype or type_of(a.self))
end
local function new(a, value)
  local own = type_of(a.self)
  return filled(a.size, value, a.dtype or own)
end
operators.new_ones = function(a) return new(a, 1) end
operators.new_zeros = function(a) return new(a, 0) end
operators.new_full = function(a) return new(a, a.fill_value) end

-- Operators that take constants as they are.
base.torch_takes_constants = {cat = true, scaled_dot_product_attention = true, sym_size = true, full_like = true,
  zeros_like = true, ones_like = true, new_ones = true, new_zeros = true, new_full = true,
  arange = true, full = true, zeros = true, ones = true, scalar_tensor = true,
  _assert_tensor_metadata = true}

-- ------------------------------------------------------------------------------------ on constants

local c = on_constants
c.add = function(a) return constants.add(a.self, a.other, a.alpha) end
c.sub = function(a) return constants.sub(a.self, a.other, a.alpha) end
c.rsub = function(a) return constants.sub(a.other, a.self, a.alpha) end
c.mul = function(a) return constants.mul(a.self, a.other) end
c.neg = function(a) return constants.neg(a.self) end
for _, name in ipairs{"eq", "ne", "lt", "le", "gt", "ge"} do
  c[name] = function(a) return constants[name](a.self, a.other) end
end
for _, name in ipairs{"__and__", "bitwise_and", "logical_and"} do
  c[name] = function(a) return constants.both(a.self, a.other) end
end
for _, name in ipairs{"__or__", "bitwise_or", "logical_or"} do
  c[name] = function(a) return constants.either(a.self, a.other) end
end
c.logical_not = function(a) return constants.negation(a.self) end
c.bitwise_not = c.logical_not
c.where = function(a) return constants.where(a.condition, a.self, a.other) end
c.unsqueeze = function(a) return constants.unsqueeze(a.self, a.dim) end
c.permute = function(a) return constants.permute(a.self, a.dims) end
c.transpose = function(a) return constants.transpose(a.self, a.dim0, a.dim1) end
c.expand = function(a) return constants.expand(a.self, a.size) end
c.select = function(a) return constants.select(a.self, a.dim, a.index) end
c.slice = function(a)
  local d, by = a.dim or 0, a.step or 1
  local shape = a.self.shape
  local first, count = slice_of(shape[(d < 0 and d + #shape or d) + 1], a.start, a["end"])
  if count > 0 and base.elements(shape) > 0 then return constants.slice(a.self, d, first, (count + by - 1) // by, by) end
  return constants.full(base.resized(shape, base.dimension(shape, d), (count + by - 1) // by), 0, a.self.type)
end
c.view = function(a)
  local sizes, count, open = {}, 1, nil
  for i, size in ipairs(a.size or a.shape) do
    sizes[i] = size
    if size == -1 then open = i else count = count * size end
  end
  if open then sizes[open] = base.elements(a.self.shape) // count end
  return constants.reshape(a.self, sizes)
end
c.reshape, c._unsafe_view = c.view, c.view
c.cat = function(a) return constants.cat(a.tensors, a.dim or 0) end
c.diff = function(a)
  if a.n ~= nil and a.n ~= 1 or a.append ~= nil then return nil end
  local x, dim = a.self, a.dim or -1
  if a.prepend ~= nil then x = constants.cat({a.prepend, x}, dim) end
  return x and constants.diff(x, dim)
end
c.cumsum = function(a)
  local kind = a.dtype or RANK[a.self.type] < 4 and "int64" or a.self.type
  local x = constants.to(a.self, kind)
  return x and constants.cumsum(x, a.dim)
end
c.any = function(a) return a.dim and constants.any(a.self, a.dim, a.keepdim) end
c.index = function(a) return constants.index(a.self, a.indices) end
c.to = function(a)
  local kind = a.dtype or a.other ~= nil and a.other.type
  return kind and constants.to(a.self, kind) or not kind and a.self or nil
end
c._to_copy = c.to
for _, name in ipairs{"alias", "contiguous", "clone", "lift_fresh_copy", "detach"} do c[name] = same end
c.full_like = operators.full_like
c.masked_fill = function(a) return constants.where(a.mask, a.value, a.self) end
