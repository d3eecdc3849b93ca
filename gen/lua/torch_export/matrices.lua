-- matrices.lua: inverses, determinants and other functions of small matrices of exported programs. Elimination with
-- pivots is a loop over the columns; no gradient goes through it, but through a product with its result.
local core, base = ...
local raw, fail, operators = base.raw, base.fail, base.torch_operators

local MOST = 256

-- The matrix [..., n, n], its n, and the matrix as [batch, n, n].
local function square_of(x, who)
  local shape = core.shape(x)
  local n = shape[#shape]
  if #shape < 2 or shape[#shape - 1] ~= n then fail("%s takes square matrices", who) end
  if n > MOST then fail("%s supports matrices of at most %d rows, not %d", who, MOST, n) end
  return n, base.view(x, {base.elements(shape) // (n * n), n, n})
end
local function identity(n)
  local i = base.index_row(n)
  return raw.to(raw.eq(base.view(i, {n, 1}), base.view(i, {1, n})), "float32")
end
local function column(v) return raw.unsqueeze(v, -1) end
local function row(v) return raw.unsqueeze(v, -2) end
local function transposed(x) return raw.transpose(x, -1, -2) end
local function batch_of(x) return table.move(core.shape(x), 1, #core.shape(x) - 2, 1, {}) end

-- Of [b, n, n]: the inverse, the pivots [b, n], and for each step [b, step, row] 1 at the row of its pivot.
local function eliminated(x, n)
  local b = core.shape(x)[1]
  local unit = identity(n)
  local state = {m = raw.cat({raw.detach(x), raw.expand(raw.unsqueeze(unit, 0), {b, n, n})}, 2), free = raw.full({b, n}, 1, "float32")}
  local last, out = base.scan(function(given, own)
    local m, free = given.m, given.free
    local entries = raw.sum(raw.mul(m, raw.pad(own, {0, n})), -1)
    local best = raw.argmax(raw.where(raw.gt(free, 0), raw.abs(entries), -1.0), -1)
    local taken = raw.to(raw.eq(column(raw.to(best, "int32")), base.index_row(n)), "float32")
    local pivot = raw.sum(raw.mul(entries, taken), -1)
    local line = raw.div(raw.sum(raw.mul(m, column(taken)), 1), column(pivot))
    local rest = raw.sub(1, taken)
    m = raw.sub(raw.mul(m, column(rest)), raw.mul(column(raw.sub(raw.mul(entries, rest), taken)), row(line)))
    return {m = m, free = raw.mul(free, rest)}, {pivot = pivot, taken = taken}
  end, state, unit)
  return last.m, raw.transpose(out.pivot, 0, 1), raw.transpose(out.taken, 0, 1)
end
local function inverse_of(x, n)
  local m, pivots, taken = eliminated(x, n)
  return raw.matmul(taken, raw.narrow(m, 2, n, n)), pivots, taken
end

base.small_matrices = {MOST = MOST, identity = identity, column = column, row = row, transposed = transposed,
  batch_of = batch_of, inverse_of = inverse_of}

-- A step of Newton's from the inverse, which has the gradient, too.
local function inverted(x, n)
  local y = raw.detach((inverse_of(x, n)))
  return raw.matmul(y, raw.sub(raw.mul(identity(n), 2), raw.matmul(x, y)))
end
operators.linalg_inv = function(a)
  local n, x = square_of(a.A, "linalg.inv")
  return base.view(inverted(x, n), core.shape(a.A))
end
-- No matrix is looked at: a singular one gives numbers that are infinite or none.
operators.linalg_inv_ex = function(a)
  local shape = core.shape(a.A)
  return operators.linalg_inv(a), raw.full(table.move(shape, 1, #shape - 2, 1, {}), 0, "int32")
end

-- The logarithm of the determinant's size, and its sign: that of the pivots, and of the order of their rows.
-- is_tame: the inverse of a singular matrix counts as 0.
local function determinant(x, n, is_tame)
  local inverse, pivots, taken = inverse_of(x, n)
  local at = raw.sum(raw.mul(taken, raw.to(base.index_row(n), "float32")), -1)
  local i = base.index_row(n)
  local later = raw.gt(base.view(i, {n, 1}), base.view(i, {1, n}))
  local swaps = raw.sum(raw.to(raw.logical_and(later, raw.lt(column(at), row(at))), "float32"), {1, 2})
  local negative = raw.sum(raw.to(raw.lt(pivots, 0), "float32"), 1)
  local odd = raw.remainder(raw.add(swaps, negative), 2)
  local singular = raw.any(raw.eq(pivots, 0), 1)
  local sign = raw.where(singular, 0.0, raw.sub(1, raw.mul(odd, 2)))
  if is_tame then
    inverse = raw.where(column(column(singular)), 0.0, inverse)
    pivots = raw.where(column(singular), 0.0, pivots) -- those behind a 0 are no numbers
  end
  -- The derivative of the logarithm is the transposed inverse.
  local trace = raw.sum(raw.mul(raw.detach(transposed(inverse)), x), {1, 2})
  return raw.detach(pivots), raw.detach(sign), raw.sub(trace, raw.detach(trace))
end
local function slogdet(x, who)
  local n, m = square_of(x, who)
  local pivots, sign, slope = determinant(m, n)
  local size = raw.sum(raw.log(raw.abs(pivots)), 1)
  size = raw.where(raw.eq(sign, 0), -math.huge, raw.add(size, slope)) -- the gradient there is no number
  return base.view(sign, batch_of(x)), base.view(size, batch_of(x))
end
operators.linalg_slogdet = function(a) return slogdet(a.A, "slogdet") end
operators.logdet = function(a)
  local sign, size = slogdet(a.self, "logdet")
  return raw.where(raw.lt(sign, 0), raw.log(sign), size)
end
-- Of a singular matrix it is 0, and so is its gradient, as in PyTorch.
operators.linalg_det = function(a)
  local n, m = square_of(a.A, "det")
  local pivots, sign, slope = determinant(m, n, true)
  local size = raw.mul(sign, raw.prod(raw.abs(pivots), 1))
  return base.view(raw.mul(size, raw.add(slope, 1)), batch_of(a.A))
end
-- As core ATen has them, without the factors.
operators._linalg_det, operators._linalg_slogdet = operators.linalg_det, operators.linalg_slogdet

-- x with matrix x = right, once more for the rest that is left.
local function solved(matrix, right, inverse)
  local y = raw.detach(raw.matmul(inverse, right))
  return raw.add(y, raw.matmul(inverse, raw.sub(right, raw.matmul(matrix, y))))
end
-- Matrices [..., n, n] and right sides [..., n, k], or [..., n] where `is_vector`, whose leading dimensions broadcast.
local function solution(matrix, right, is_vector, from_right)
  local n, m = square_of(matrix, "linalg.solve")
  if is_vector then right = column(right) end
  local inverse = base.view(raw.detach((inverse_of(m, n))), core.shape(matrix))
  local y
  if from_right then
    y = transposed(solved(transposed(matrix), transposed(right), transposed(inverse)))
  else
    y = solved(matrix, right, inverse)
  end
  return is_vector and raw.squeeze(y, -1) or y
end
operators.linalg_solve = function(a)
  local s, t = core.shape(a.A), core.shape(a.B)
  local is_vector = #t == 1 or #t == #s - 1 and base.same_shape(t, table.move(s, 1, #s - 1, 1, {}))
  return solution(a.A, a.B, is_vector, a.left == false)
end
operators.linalg_solve_ex = function(a) return operators.linalg_solve(a), raw.full(batch_of(a.A), 0, "int32") end
operators._linalg_solve_ex = function(a)
  return operators.linalg_solve(a), raw.full({1}, 0, "float32"), raw.full({1}, 0, "int32"), raw.full({1}, 0, "int32")
end
local function triangle(x, upper, unitriangular)
  local y = upper and raw.triu(x) or raw.tril(x)
  if not unitriangular then return y end
  local n = core.shape(x)[#core.shape(x)]
  return raw.add(raw.mul(y, raw.sub(1, identity(n))), identity(n))
end
operators.linalg_solve_triangular = function(a)
  return solution(triangle(a.self, a.upper, a.unitriangular), a.B, false, a.left == false)
end
operators.triangular_solve = function(a)
  local x = triangle(a.A, a.upper ~= false, a.unitriangular)
  return solution(a.transpose and transposed(x) or x, a.self, false, false), a.A
end
operators.cholesky_solve = function(a)
  local l = triangle(a.input2, a.upper)
  local lower = a.upper and transposed(l) or l
  return solution(transposed(lower), solution(lower, a.self, false), false)
end

-- The lower triangle whose product with its transposed is the matrix, column by column.
local function cholesky(x, n)
  local _, l = base.scan(function(m, own)
    local entries = raw.sum(raw.mul(m, own), -1)
    local pivot = raw.sum(raw.mul(entries, own), -1)
    local line = raw.div(entries, column(raw.sqrt(pivot)))
    return raw.sub(m, raw.mul(column(line), row(line))), line
  end, raw.detach(x), identity(n))
  return raw.tril(raw.permute(l, {1, 2, 0}))
end
operators.linalg_cholesky = function(a)
  local n, m = square_of(a.A or a.self, "cholesky")
  -- Only one of the triangles is read.
  local below = a.upper and raw.transpose(raw.triu(m), 1, 2) or raw.tril(m)
  local whole = raw.add(below, raw.transpose(raw.tril(below, -1), 1, 2))
  local l = raw.detach(cholesky(whole, n))
  local inverse = raw.detach((inverse_of(l, n)))
  -- The gradient goes to both triangles alike.
  local own = raw.mul(raw.add(m, raw.transpose(m, 1, 2)), 0.5)
  local moved = raw.matmul(raw.matmul(inverse, raw.sub(own, raw.detach(own))), raw.transpose(inverse, 1, 2))
  local y = raw.add(l, raw.matmul(l, raw.sub(raw.tril(moved), raw.mul(raw.mul(moved, identity(n)), 0.5))))
  if a.upper then y = raw.transpose(y, 1, 2) end
  return base.view(y, core.shape(a.A or a.self))
end
operators.cholesky = operators.linalg_cholesky
operators.linalg_cholesky_ex = function(a)
  local x = a.A or a.self
  return operators.linalg_cholesky{A = x, upper = a.upper}, raw.full(batch_of(x), 0, "int32")
end
operators.cholesky_inverse = function(a)
  local l = triangle(a.self, a.upper)
  return operators.linalg_inv{A = a.upper and raw.matmul(transposed(l), l) or raw.matmul(l, transposed(l))}
end

-- e to the matrix: of the matrix over 2^s, whose norm is at most 1/2, by its series; squared s times.
local SQUARES, TERMS = 16, 9
operators.linalg_matrix_exp = function(a)
  local n, x = square_of(a.self or a.A, "matrix_exp")
  local norm = raw.detach(raw.amax(raw.sum(raw.abs(x), 1), 1))
  local times = raw.clamp(raw.ceil(raw.div(raw.log(raw.clamp(raw.mul(norm, 2), 1)), math.log(2))), 0, SQUARES)
  times = base.view(times, {core.shape(x)[1], 1, 1})
  x = raw.mul(x, raw.exp(raw.mul(times, -math.log(2))))
  local unit = identity(n)
  local y = raw.add(raw.mul(x, 1 / TERMS), unit)
  for k = TERMS - 1, 1, -1 do y = raw.add(raw.mul(raw.matmul(x, y), 1 / k), unit) end
  for k = 1, SQUARES do y = raw.where(raw.ge(times, k), raw.matmul(y, y), y) end
  return base.view(y, core.shape(a.self or a.A))
end
