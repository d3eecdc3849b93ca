-- everyday.lua: operators of exported programs that are made of functions of the plan language, or of a few of them: losses,
-- logarithms that are 0 at 0, diagonals, turns, norms of matrices.
local core, base = ...
local raw, fail, torch = base.raw, base.fail, base.torch
local operators, is_tensor = base.torch_operators, core.is_tensor

local floats = torch.floats

-- -------------------------------------------------------------------------------------------- losses

local REDUCTIONS = {[0] = "none", "mean", "sum"}
local function how(a)
  local given = a.reduction
  return REDUCTIONS[given == nil and 1 or given] or fail("a reduction of %s is not supported", tostring(given))
end
operators.binary_cross_entropy = function(a) return raw.binary_cross_entropy(a.self, a.target, a.weight, nil, nil, how(a)) end
operators.kl_div = function(a) return raw.kl_div(a.self, a.target, nil, nil, how(a), a.log_target) end
operators.pairwise_distance = torch.calls("pairwise_distance", "x1", "x2", "p", "eps", "keepdim")
operators.poisson_nll_loss = function(a)
  return raw.poisson_nll_loss(a.input, a.target, a.log_input, a.full, nil, a.eps, nil, how(a))
end
operators.soft_margin_loss = function(a) return raw.soft_margin_loss(a.self, a.target, nil, nil, how(a)) end
operators.margin_ranking_loss = function(a)
  return raw.margin_ranking_loss(a.input1, a.input2, a.target, a.margin, nil, nil, how(a))
end
operators.hinge_embedding_loss = function(a) return raw.hinge_embedding_loss(a.self, a.target, a.margin, nil, nil, how(a)) end
operators.cosine_embedding_loss = function(a)
  return raw.cosine_embedding_loss(a.input1, a.input2, a.target, a.margin, nil, nil, how(a))
end
operators.triplet_margin_loss = function(a)
  return raw.triplet_margin_loss(a.anchor, a.positive, a.negative, a.margin, a.p, a.eps, a.swap, nil, nil, how(a))
end

-- -------------------------------------------------------------------------------- element by element

operators.isfinite = torch.calls("isfinite", "self")
-- x log(y), which is 0 where x is.
operators.xlogy = function(a)
  local x, y = a.self, a.other
  if not is_tensor(y) then
    if y <= 0 then fail("xlogy of the number %s is not supported", y) end
    return raw.mul(x, math.log(y))
  end
  local none = is_tensor(x) and raw.eq(x, 0) or raw.full(core.shape(y), x == 0 and 1 or 0, "bool")
  none = raw.logical_and(none, raw.eq(y, y))
  return raw.where(none, 0.0, raw.mul(x, raw.log(raw.where(none, 1.0, floats(y)))))
end
operators.special_xlogy = operators.xlogy
operators.logit = function(a)
  local x = floats(a.self)
  if a.eps ~= nil then x = raw.clamp(x, a.eps, 1 - a.eps) end
  return raw.log(raw.div(x, raw.sub(1, x)))
end
operators.special_logit = operators.logit
operators.hypot = function(a) return raw.sqrt(raw.add(raw.square(a.self), raw.square(a.other))) end
operators.heaviside = function(a)
  return raw.where(raw.eq(a.self, 0), a.values, raw.to(raw.gt(a.self, 0), core.type(a.self)))
end
operators.ldexp = function(a) return raw.mul(a.self, raw.pow(2, floats(a.other))) end
operators.sinc = function(a)
  local x = raw.mul(floats(a.self), math.pi)
  local none = raw.eq(x, 0)
  local y = raw.where(none, 1.0, x)
  return raw.where(none, 1.0, raw.div(raw.sin(y), y))
end
operators.isin = function(a)
  local x, test, _ = a.elements, a.test_elements, a.assume_unique
  if not is_tensor(x) then fail("isin of a number is not supported") end
  local found = a.test_element ~= nil and raw.eq(x, a.test_element)
    or raw.any(raw.eq(raw.unsqueeze(x, -1), raw.flatten(test)), -1)
  return a.invert and raw.logical_not(found) or found
end

-- --------------------------------------------------------------------------------- along dimensions

operators.std_mean = function(a) return operators.std(a), raw.mean(a.self, a.dim, a.keepdim) end
operators.aminmax = function(a) return raw.amin(a.self, a.dim, a.keepdim), raw.amax(a.self, a.dim, a.keepdim) end
operators.count_nonzero = function(a) return raw.sum(raw.to(raw.ne(a.self, 0), "int64"), a.dim) end
local function numbers_only(x) return raw.where(raw.isnan(x), 0.0, x) end
operators.nansum = function(a)
  return raw.sum(numbers_only(a.dtype and raw.to(a.self, a.dtype) or a.self), a.dim, a.keepdim)
end
operators.nanmean = function(a)
  local x = a.dtype and raw.to(a.self, a.dtype) or a.self
  local count = raw.sum(raw.to(raw.logical_not(raw.isnan(x)), "float32"), a.dim, a.keepdim)
  return raw.div(raw.sum(numbers_only(x), a.dim, a.keepdim), count)
end
operators.trapezoid = function(a)
  local y, d = a.y, base.dimension(core.shape(a.y), a.dim or -1)
  local n = core.shape(y)[d + 1]
  local function means(v) return raw.add(raw.narrow(v, d, 1, n - 1), raw.narrow(v, d, 0, n - 1)) end
  if n < 2 then fail("trapezoid of one number is not supported") end
  local x = a.x
  if x == nil then return raw.mul(raw.sum(means(y), d), 0.5 * (a.dx or 1)) end
  local e = #core.shape(x) == 1 and 0 or d
  local steps = raw.sub(raw.narrow(x, e, 1, n - 1), raw.narrow(x, e, 0, n - 1))
  if e ~= d then
    local across = {}
    for i = 1, #core.shape(y) do across[i] = i == d + 1 and n - 1 or 1 end
    steps = base.view(steps, across)
  end
  return raw.mul(raw.sum(raw.mul(means(y), steps), d), 0.5)
end
operators.dist = function(a) return raw.norm(raw.sub(a.self, a.other), a.p or 2) end
operators.linalg_norm = function(a)
  local x, ord, dim = a.dtype and raw.to(a.self, a.dtype) or a.self, a.ord, a.dim
  local dims = dim and (type(dim) == "table" and #dim or 1) or #core.shape(x)
  if ord == nil or ord == "fro" or dims == 1 then return raw.norm(x, ord == "fro" and 2 or ord or 2, dim, a.keepdim) end
  return operators.linalg_matrix_norm{self = x, ord = ord, dim = dim, keepdim = a.keepdim}
end
-- Norms that are of singular values: their sum, the greatest one and the least one.
local function norm_of_singular_values(x, ord, rows, columns, keepdim)
  local shape, order = core.shape(x), {}
  for d = 0, #shape - 1 do
    if d ~= rows and d ~= columns then order[#order + 1] = d end
  end
  order[#order + 1], order[#order + 2] = rows, columns
  local s = operators.linalg_svdvals{A = raw.permute(x, order)}
  local y = ord == "nuc" and raw.sum(s, -1) or raw[ord == 2 and "amax" or "amin"](s, -1)
  if not keepdim then return y end
  return base.view(y, base.resized(base.resized(shape, rows, 1), columns, 1))
end
operators.linalg_matrix_norm = function(a)
  local x, ord = a.dtype and raw.to(a.self, a.dtype) or a.self, a.ord == nil and "fro" or a.ord
  local shape = core.shape(x)
  local dims = a.dim or {-2, -1}
  local rows, columns = base.dimension(shape, dims[1]), base.dimension(shape, dims[2])
  if ord == "fro" then return raw.norm(x, 2, {rows, columns}, a.keepdim) end
  if ord == "nuc" or ord == 2 or ord == -2 then
    return norm_of_singular_values(x, ord, rows, columns, a.keepdim)
  end
  if type(ord) ~= "number" or math.abs(ord) ~= 1 and math.abs(ord) ~= math.huge then
    fail("there is no matrix norm of the order %s", tostring(ord))
  end
  local of_columns = math.abs(ord) == 1
  local sums = raw.sum(raw.abs(x), of_columns and rows or columns, true)
  local y = raw[ord > 0 and "amax" or "amin"](sums, of_columns and columns or rows, true)
  return a.keepdim and y or raw.squeeze(y, {rows, columns})
end

-- ------------------------------------------------------------------------------------ parts and turns

operators.diag_embed = function(a)
  local x, offset = a.self, a.offset or 0
  local dims, n = #core.shape(x) + 1, core.shape(x)[#core.shape(x)]
  if (a.dim1 or -2) % dims ~= dims - 2 or (a.dim2 or -1) % dims ~= dims - 1 then
    fail("diag_embed supports only the last two dimensions")
  end
  local size = n + math.abs(offset)
  local index = base.index_row(size)
  local wide = raw.pad(x, {0, size - n})
  local is_on = raw.eq(raw.sub(index, raw.unsqueeze(index, 1)), offset)
  return raw.where(is_on, raw.unsqueeze(wide, offset >= 0 and -1 or -2), 0)
end
operators.diag = function(a)
  if #core.shape(a.self) == 1 then return operators.diag_embed{self = a.self, offset = a.diagonal} end
  return raw.diagonal(a.self, a.diagonal)
end
operators.trace = function(a) return raw.sum(raw.diagonal(a.self)) end
operators.fliplr = function(a) return raw.flip(a.self, 1) end
operators.flipud = function(a) return raw.flip(a.self, 0) end
operators.rot90 = function(a)
  local times, dims = (a.k or 1) % 4, a.dims or {0, 1}
  local x = a.self
  if times == 0 then return x end
  if times == 2 then return raw.flip(x, {dims[1], dims[2]}) end
  return raw.flip(raw.transpose(x, dims[1], dims[2]), times == 1 and dims[1] or dims[2])
end
operators.channel_shuffle = function(a)
  local shape = core.shape(a.self)
  return base.view(raw.transpose(raw.unflatten(a.self, 1, a.groups, -1), 1, 2), shape)
end
operators.take_along_dim = function(a)
  local x, index = a.self, a.indices
  if a.dim == nil then return raw.gather(raw.flatten(x), 0, raw.flatten(index)) end
  local s, t = core.shape(x), core.shape(index)
  local d = base.dimension(s, a.dim)
  for i = 1, #s do
    if i ~= d + 1 then s[i], t[i] = math.max(s[i], t[i]), math.max(s[i], t[i]) end
  end
  return raw.gather(raw.expand(x, s), d, raw.expand(index, t))
end

-- ------------------------------------------------------------------------------------------ products

operators.tensordot = function(a)
  local s, t = core.shape(a.self), core.shape(a.other)
  local left, right, out = {}, {}, {}
  for i = 1, #s do left[i] = string.sub("abcdefgh", i, i) end
  for i = 1, #t do right[i] = string.sub("ijklmnop", i, i) end
  for i, d in ipairs(a.dims_self) do
    right[base.dimension(t, a.dims_other[i]) + 1] = left[base.dimension(s, d) + 1]
  end
  local twice = {}
  for _, c in ipairs(right) do twice[c] = true end
  for _, c in ipairs(left) do
    if not twice[c] then out[#out + 1] = c end
    twice[c] = twice[c] and "both" or nil
  end
  for _, c in ipairs(right) do
    if twice[c] ~= "both" then out[#out + 1] = c end
  end
  return raw.einsum(table.concat(left) .. "," .. table.concat(right) .. "->" .. table.concat(out), a.self, a.other)
end
operators.kron = function(a)
  local x, y = a.self, a.other
  local n = math.max(#core.shape(x), #core.shape(y))
  while #core.shape(x) < n do x = raw.unsqueeze(x, 0) end
  while #core.shape(y) < n do y = raw.unsqueeze(y, 0) end
  local s, t, sizes = core.shape(x), core.shape(y), {}
  local left, right = {}, {}
  for i = 1, n do
    left[2 * i - 1], left[2 * i], right[2 * i - 1], right[2 * i], sizes[i] = s[i], 1, 1, t[i], s[i] * t[i]
  end
  return base.view(raw.mul(base.view(x, left), base.view(y, right)), sizes)
end
local function added(a, product)
  local beta, alpha = a.beta == nil and 1 or a.beta, a.alpha == nil and 1 or a.alpha
  local y = raw.mul(product, alpha)
  return beta == 0 and y or raw.add(raw.mul(a.self, beta), y)
end
operators.addbmm = function(a) return added(a, raw.sum(raw.bmm(a.batch1, a.batch2), 0)) end
operators.addmv = function(a) return added(a, raw.mv(a.mat, a.vec)) end
operators.addr = function(a) return added(a, raw.outer(a.vec1, a.vec2)) end
operators.linalg_cross = function(a)
  local d = base.dimension(core.shape(a.self), a.dim or -1)
  local function turned(x, by) return raw.cat({raw.narrow(x, d, by, 3 - by), raw.narrow(x, d, 0, by)}, d) end
  local x, y = a.self, a.other
  return raw.sub(raw.mul(turned(x, 1), turned(y, 2)), raw.mul(turned(x, 2), turned(y, 1)))
end
operators.matrix_power = function(a)
  if a.n < 1 then fail("matrix_power supports only powers of 1 and more") end
  local y, square, n = nil, a.self, a.n
  while n > 0 do
    if n % 2 == 1 then y = y and raw.matmul(y, square) or square end
    n = n // 2
    if n > 0 then square = raw.matmul(square, square) end
  end
  return y
end

-- --------------------------------------------------------------------------------- rows of numbers

operators.logspace = function(a)
  if type(a.start) ~= "number" or type(a["end"]) ~= "number" then fail("logspace between tensors is not supported") end
  local y = raw.pow(a.base or 10.0, raw.linspace(a.start, a["end"], a.steps))
  return a.dtype and raw.to(y, a.dtype) or y
end
operators.hann_window = function(a)
  local n = a.window_length
  local whole = a.periodic == false and n - 1 or n
  if n < 2 then fail("a window of %d is not supported", n) end
  local y = raw.sub(0.5, raw.mul(0.5, raw.cos(raw.mul(raw.to(base.index_row(n), "float32"), 2 * math.pi / whole))))
  return a.dtype and raw.to(y, a.dtype) or y
end

-- Of whole channels, or with the mean and the deviation kept: not in training.
for _, name in ipairs{"feature_dropout", "alpha_dropout", "feature_alpha_dropout"} do
  operators[name] = function(a)
    if a.train and a.p ~= 0 then fail("%s in training is not supported", name) end
    local _ = a.p
    return a.input or a.self
  end
end
