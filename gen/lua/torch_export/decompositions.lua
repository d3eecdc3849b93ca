-- decompositions.lua: of small matrices QR, eigenvalues and singular values, and what is made of them. Eigenvalues and
-- singular values are LAPACK's, on CPUs; QR is a loop over the columns. The gradient goes through a term that is 0: the
-- change of the factors, to first order, by what the matrix is more than itself without a gradient.
local core, base = ...
local raw, fail, operators = base.raw, base.fail, base.torch_operators
local small = base.small_matrices
local column, row, transposed, identity = small.column, small.row, small.transposed, small.identity

local MOST = small.MOST
local EPSILON <const> = 2.0 ^ -23     -- of float32
local LEAST <const> = 1.2e-38         -- in place of 0 below a fraction: gradients become infinite there, and values stay

-- The matrices as [batch, m, n], m, n, and the leading dimensions.
local function matrices_of(x, who)
  local shape = core.shape(x)
  if #shape < 2 then fail("%s takes matrices", who) end
  local m, n = shape[#shape - 1], shape[#shape]
  if math.max(m, n) > MOST then fail("%s supports matrices of at most %d rows and columns, not [%d, %d]", who, MOST, m, n) end
  return base.view(raw.to(x, "float32"), {base.elements(shape) // (m * n), m, n}), m, n, small.batch_of(x)
end
local function shaped(x, batch, ...)
  local shape = table.move(batch, 1, #batch, 1, {})
  for _, size in ipairs{...} do shape[#shape + 1] = size end
  return base.view(x, shape)
end
local function change(x) return raw.sub(x, raw.detach(x)) end
local function product(...)
  local y
  for _, x in ipairs{...} do y = y and raw.matmul(y, x) or x end
  return y
end
-- x / y, where a y of 0 gives 0 for an x of 0.
local function over(x, y) return raw.div(x, raw.where(raw.eq(y, 0), LEAST, y)) end
local function diagonal(x, n) return raw.sum(raw.mul(x, identity(n)), -1) end

-- ------------------------------------------------------------------------------------- eigenvalues

local function eigh(x, who, upper)
  local m, rows, n, batch = matrices_of(x, who)
  if rows ~= n then fail("%s takes square matrices", who) end
  local values, vectors = core.append("eigh", {raw.detach(upper and transposed(m) or m)}, {})
  local moved = product(transposed(vectors), change(m), vectors)
  local gaps = raw.add(raw.sub(row(values), column(values)), identity(n))
  local turn = over(raw.mul(moved, raw.sub(1, identity(n))), gaps)
  return shaped(raw.add(values, diagonal(moved, n)), batch, n),
    shaped(raw.add(vectors, raw.matmul(vectors, turn)), batch, n, n)
end
local function is_upper(uplo, who)
  uplo = string.upper(uplo or "L")
  if uplo ~= "L" and uplo ~= "U" then fail("%s: UPLO is 'L' or 'U', not '%s'", who, uplo) end
  return uplo == "U"
end
operators.linalg_eigh = function(a) return eigh(a.self or a.A, "linalg.eigh", is_upper(a.UPLO, "linalg.eigh")) end
operators._linalg_eigh = function(a)
  local values, vectors = operators.linalg_eigh(a)
  if a.compute_v == false then return values end
  return values, vectors
end
operators.linalg_eigvalsh = function(a)
  return (eigh(a.self or a.A, "linalg.eigvalsh", is_upper(a.UPLO, "linalg.eigvalsh")))
end

-- --------------------------------------------------------------------------------- singular values

-- U [.., m, u], the values [.., k], V transposed [.., v, n]; u and v are m and n where it is full, else k.
local function svd(x, who, full)
  local a, m, n, batch = matrices_of(x, who)
  local k = math.min(m, n)
  local u, v = full and m or k, full and n or k
  local left, values, right = core.append("svd", {raw.detach(a)}, {sizes = {u = u, k = k, v = v}})
  local own_left, own_right = raw.narrow(left, 2, 0, k), transposed(raw.narrow(right, 1, 0, k))
  local d = change(a)
  local moved = product(transposed(own_left), d, own_right)
  local across, down = row(values), column(values)
  local gaps = raw.add(raw.mul(raw.sub(across, down), raw.add(across, down)), identity(k))
  local apart = raw.sub(1, identity(k))
  local function turned(own, p, q, is_tall)
    local y = raw.matmul(own, over(raw.mul(raw.add(raw.mul(p, across), raw.mul(down, transposed(p))), apart), gaps))
    return is_tall and raw.add(y, over(raw.sub(raw.matmul(q[1], q[2]), raw.matmul(own, p)), across)) or y
  end
  local turn_left = turned(own_left, moved, {d, own_right}, m > k)
  local turn_right = transposed(turned(own_right, transposed(moved), {transposed(d), own_left}, n > k))
  if u > k then turn_left = raw.pad(turn_left, {0, u - k}) end
  if v > k then turn_right = raw.pad(turn_right, {0, 0, 0, v - k}) end
  return shaped(raw.add(left, turn_left), batch, m, u), shaped(raw.add(values, diagonal(moved, k)), batch, k),
    shaped(raw.add(right, turn_right), batch, v, n)
end
operators.linalg_svd = function(a) return svd(a.A, "linalg.svd", a.full_matrices ~= false) end
local function singular_values(x, who)
  local _, s = svd(x, who, false)
  return s
end
operators.linalg_svdvals = function(a) return singular_values(a.A, "linalg.svdvals") end
-- Without vectors U and V are empty: nothing can use them.
operators._linalg_svd = function(a)
  if a.compute_uv == false then return nil, singular_values(a.A, "linalg.svd") end
  return svd(a.A, "linalg.svd", a.full_matrices)
end
-- The older function gives V, not transposed.
operators.svd = function(a)
  if a.compute_uv == false then fail("svd without vectors is not supported: torch.linalg.svdvals is") end
  local u, s, vh = svd(a.self, "svd", a.some == false)
  return u, s, transposed(vh)
end

-- ------------------------------------------------------------------------------- ranks and inverses

-- What is below counts as 0: the greater one of atol and rtol times the greatest value.
local function bound(s, a, m, n)
  for _, key in ipairs{"atol", "rtol"} do
    if a[key] ~= nil and type(a[key]) ~= "number" then fail("%s as a tensor is not supported", key) end
  end
  local atol = a.atol or 0
  local rtol = a.rtol or (atol > 0 and 0 or math.max(m, n) * EPSILON)
  return raw.maximum(raw.mul(raw.amax(s, -1, true), rtol), atol)
end
local function symmetric(m)
  return raw.add(raw.tril(m), transposed(raw.tril(m, -1)))
end
local function rank_of(x, a, who)
  local shape = core.shape(x)
  local m, n = shape[#shape - 1], shape[#shape]
  local s
  if a.hermitian then
    s = raw.abs((eigh(x, who, false)))
  else
    s = singular_values(x, who)
  end
  s = raw.detach(s)
  return raw.to(raw.sum(raw.to(raw.gt(s, bound(s, a, m, n)), "float32"), -1), "int64")
end
operators.linalg_matrix_rank = function(a)
  local x = a.input or a.self or a.A
  if a.tol ~= nil then return rank_of(x, {atol = a.tol, rtol = 0, hermitian = a.hermitian}, "linalg.matrix_rank") end
  return rank_of(x, a, "linalg.matrix_rank")
end

local function pseudo_inverse(x, a, who)
  local m, rows, n, batch = matrices_of(x, who)
  local own = a.hermitian and symmetric(m) or m
  local u, s, vh = svd(raw.detach(own), who, false)
  local small_ones = raw.le(s, bound(s, a, rows, n))
  local scale = raw.where(small_ones, 0.0, raw.div(1, raw.where(small_ones, 1.0, s)))
  local p = raw.detach(product(raw.mul(transposed(vh), row(scale)), transposed(u)))
  local d, there, pt = change(own), raw.detach(own), transposed(p)
  local dt = transposed(d)
  local rest_left = raw.sub(identity(rows), raw.matmul(there, p))
  local rest_right = raw.sub(identity(n), raw.matmul(p, there))
  local moved = raw.sub(raw.add(product(p, pt, dt, rest_left), product(rest_right, dt, pt, p)), product(p, d, p))
  return shaped(raw.add(p, moved), batch, n, rows)
end
operators.linalg_pinv = function(a)
  local x = a.self or a.A
  if a.rcond ~= nil then return pseudo_inverse(x, {rtol = a.rcond, hermitian = a.hermitian}, "linalg.pinv") end
  return pseudo_inverse(x, a, "linalg.pinv")
end
operators.pinverse = function(a) return pseudo_inverse(a.self, {rtol = a.rcond or 1e-15}, "pinverse") end

operators.linalg_cond = function(a)
  local x, p = a.self or a.A, a.p
  if p == nil or p == 2 or p == -2 then
    local s = singular_values(x, "linalg.cond")
    local most, least = raw.amax(s, -1), raw.amin(s, -1)
    return raw.div(p == -2 and least or most, p == -2 and most or least)
  end
  local function norm(y) return operators.linalg_matrix_norm{self = y, ord = p, dim = {-2, -1}, keepdim = false} end
  return raw.mul(norm(x), norm(operators.linalg_inv{A = x}))
end

-- ---------------------------------------------------------------------------------------------- QR

-- Householder's reflections, column by column, of [b, m, n]: the triangle [b, m, n] and the whole Q [b, m, m]. Signs
-- are LAPACK's: a column that has only zeros below stays as it is.
local function reflected(x, m, n)
  local b, k = core.shape(x)[1], math.min(m, n)
  local unit = identity(m)
  local own_rows, below = raw.narrow(unit, 0, 0, k), raw.narrow(raw.triu(raw.full({m, m}, 1, "float32"), 1), 0, 0, k)
  local own_columns = raw.narrow(identity(n), 0, 0, k)
  local state = raw.cat({x, raw.expand(raw.unsqueeze(unit, 0), {b, m, m})}, 2)
  local last = base.scan(function(s, step)
    local own_row, own_column = raw.narrow(step, 0, 0, m), raw.narrow(step, 0, 2 * m, n)
    local entries = raw.sum(raw.mul(s, raw.pad(own_column, {0, m})), -1)
    local tail = raw.mul(entries, raw.narrow(step, 0, m, m))
    local head = raw.sum(raw.mul(entries, own_row), -1, true)
    -- Scaled by its greatest element, so that squares are floats.
    local most = raw.amax(raw.abs(tail), -1, true)
    local scale = raw.maximum(most, raw.abs(head))
    local whole = raw.where(raw.eq(scale, 0), 1.0, scale)
    tail, head = raw.div(tail, whole), raw.div(head, whole)
    local size = raw.sqrt(raw.add(raw.sum(raw.square(tail), -1, true), raw.square(head)))
    local v = raw.add(tail, raw.mul(own_row, raw.add(head, raw.where(raw.lt(head, 0), raw.neg(size), size))))
    local square = raw.sum(raw.square(v), -1, true)
    local factor = raw.where(raw.eq(most, 0), 0.0, raw.div(2, raw.where(raw.eq(square, 0), 1.0, square)))
    local along = raw.sum(raw.mul(s, column(v)), 1)
    return raw.sub(s, raw.mul(column(raw.mul(v, factor)), row(along))), head
  end, state, raw.cat({own_rows, below, own_columns}, 1))
  return raw.triu(raw.narrow(last, 2, 0, n)), transposed(raw.narrow(last, 2, n, m))
end

local function qr(x, mode, who)
  if mode ~= "reduced" and mode ~= "complete" and mode ~= "r" then
    fail("%s: mode is 'reduced', 'complete' or 'r', not '%s'", who, tostring(mode))
  end
  local a, m, n, batch = matrices_of(x, who)
  local k = math.min(m, n)
  if mode == "complete" and m > n then
    fail("%s: mode 'complete' of more rows than columns is not supported; PyTorch has no gradient of it, either", who)
  end
  local r, whole = reflected(raw.detach(a), m, n)
  r = raw.detach(raw.narrow(r, 1, 0, k))
  local q = raw.detach(raw.narrow(whole, 2, 0, k))
  -- The change of the first k columns by their triangle; of a triangle that has no inverse gradients are huge.
  local first = raw.narrow(r, 2, 0, k)
  local is_whole = base.view(raw.all(raw.ne(diagonal(first, k), 0), -1), {core.shape(a)[1], 1, 1})
  local inverse = raw.detach((small.inverse_of(raw.where(is_whole, first, identity(k)), k)))
  inverse = raw.where(is_whole, inverse, 1e30)
  local d = change(a)
  local scaled = raw.matmul(raw.narrow(d, 2, 0, k), inverse)
  local moved = raw.matmul(transposed(q), scaled)
  local both = raw.triu(raw.add(moved, transposed(moved)))
  local own = raw.sub(both, raw.mul(raw.mul(both, identity(k)), 0.5))
  local dq = raw.sub(scaled, raw.matmul(q, own))
  local dr = raw.triu(raw.sub(raw.matmul(transposed(q), d), raw.matmul(raw.sub(moved, own), r)))
  return shaped(raw.add(q, dq), batch, m, k), shaped(raw.add(r, dr), batch, k, n)
end
operators.linalg_qr = function(a)
  local mode = a.mode or "reduced"
  local q, r = qr(a.A, mode, "linalg.qr")
  if mode == "r" then q = raw.full({1}, 0, "float32") end
  return q, r
end
operators.qr = function(a) return qr(a.self, a.some == false and "complete" or "reduced", "qr") end
