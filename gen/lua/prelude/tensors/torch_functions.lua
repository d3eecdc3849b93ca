-- torch_functions.lua: functions of torch that are compositions, which exported programs have as operators
-- (gen/lua/torch_export). A plan that calls one has those files run.
local core, base = ...
local raw, method, define, as_method = base.raw, base.method, base.define, base.as_method
local misfit, tensor = base.misfit, base.tensor

-- The operator with these arguments, and ATen's defaults for those that are not given.
local function operator(name, arguments)
  if not base.torch_operators then core.run_archive_files() end
  for key, value in pairs(base.torch.defaults[name .. ".default"] or {}) do
    if arguments[key] == nil then arguments[key] = value end
  end
  return base.torch_operators[name](arguments)
end

local function need(v, what)
  if v == nil then misfit("say %s", what) end
  return v
end

-- ------------------------------------------------------------------------------ element by element

--- # Arithmetic
--- F.acos(input): the angle whose cosine it is. `F.asin` and `F.atan` likewise.
--- F.acosh(input): the area cosine. `F.asinh` and `F.atanh` likewise.
--- F.asin(input): see `F.acos`.
--- F.asinh(input): see `F.acosh`.
--- F.atan(input): see `F.acos`.
--- F.atanh(input): see `F.acosh`.
--- F.cosh(input): the hyperbolic cosine.
--- F.deg2rad(input): degrees as radians.
--- F.erfc(input): 1 - erf.
--- F.exp2(input): 2 to the power of it.
--- F.log10(input): the decimal logarithm.
--- F.log2(input): the binary logarithm.
--- F.rad2deg(input): radians as degrees.
--- F.sinc(input): sin(pi x) / (pi x).
--- F.sinh(input): the hyperbolic sine.
--- F.tan(input): the tangent.
--- F.isposinf(input): whether it is infinite and positive.
--- F.isneginf(input): whether it is infinite and negative.
for _, name in ipairs{"acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "deg2rad", "erfc", "exp2", "isneginf", "isposinf",
  "log10", "log2", "rad2deg", "sinc", "sinh", "tan"} do
  method(name, function(input) return operator(name, {self = input}) end)
end

--- F.atan2(input, other): the angle of the point (other, input).
--- F.copysign(input, other): its size with the sign of `other`.
--- F.fmax(input, other): the larger one; the other one where one is not a number.
--- F.fmin(input, other): likewise, the smaller one.
--- F.hypot(input, other): the root of the sum of squares.
--- F.ldexp(input, other): times 2 to the power of `other`.
--- F.logical_xor(input, other): whether one of two is true, and not both.
--- F.xlogy(input, other): input times log(other), 0 where input is.
for _, name in ipairs{"atan2", "copysign", "hypot", "ldexp", "logical_xor", "xlogy"} do
  method(name, function(input, other) return operator(name, {self = input, other = need(other, "other")}) end)
end
for name, extreme in pairs{fmax = "maximum", fmin = "minimum"} do
  method(name, function(input, other)
    local y = tensor(other, "the other")
    return raw.where(raw.isnan(input), y, raw.where(raw.isnan(y), input, raw[extreme](input, y)))
  end)
end
--- F.heaviside(input, values): 0 below 0, 1 above, and `values` at 0.
method("heaviside", function(input, values)
  return operator("heaviside", {self = input, values = tensor(values, "the values")})
end)
--- F.float_power(input, exponent): a power in floats.
method("float_power", function(input, exponent)
  return operator("float_power", {self = input, exponent = need(exponent, "the exponent")})
end)
--- F.logit(input, eps?): log(x / (1 - x)), of numbers held between `eps` and 1 - `eps`.
method("logit", function(input, eps) return operator("logit", {self = input, eps = eps}) end)
--- F.isclose(input, other, rtol = 1e-5, atol = 1e-8, equal_nan = false): whether two are nearly equal.
method("isclose", function(input, other, rtol, atol, equal_nan)
  return operator("isclose", {self = input, other = tensor(other, "the other"), rtol = rtol, atol = atol, equal_nan = equal_nan})
end)
--- F.addcmul(input, tensor1, tensor2, value = 1): plus value times the product of two.
--- F.addcdiv(input, tensor1, tensor2, value = 1): plus value times their quotient.
for _, name in ipairs{"addcmul", "addcdiv"} do
  method(name, function(input, tensor1, tensor2, value)
    return operator(name, {self = input, tensor1 = tensor(tensor1, "tensor1"), tensor2 = tensor(tensor2, "tensor2"), value = value})
  end)
end

--- F.lerp(input, end, weight): between two, `weight` of the way.
method("lerp", function(input, end_, weight)
  return operator("lerp", {self = input, ["end"] = tensor(end_, "the end"), weight = need(weight, "the weight")})
end)
--- F.nan_to_num(input, nan = 0, posinf?, neginf?): numbers in the place of those that are none or infinite.
method("nan_to_num", function(input, nan, posinf, neginf)
  return operator("nan_to_num", {self = input, nan = nan, posinf = posinf, neginf = neginf})
end)

--- F.arccos(input): as `F.acos`, and so on: `F.arccosh F.arcsin F.arcsinh F.arctan F.arctan2 F.arctanh`.
--- F.arccosh(input): as `F.acosh`.
--- F.arcsin(input): as `F.asin`.
--- F.arcsinh(input): as `F.asinh`.
--- F.arctan(input): as `F.atan`.
--- F.arctan2(input, other): as `F.atan2`.
--- F.arctanh(input): as `F.atanh`.
--- F.absolute(input): as `F.abs`.
--- F.negative(input): as `F.neg`.
--- F.fix(input): as `F.trunc`.
--- F.multiply(input, other): as `F.mul`.
--- F.true_divide(input, other, rounding_mode?): as `F.div`.
--- F.greater(input, other): as `F.gt`.
--- F.greater_equal(input, other): as `F.ge`.
--- F.less(input, other): as `F.lt`.
--- F.less_equal(input, other): as `F.le`.
--- F.not_equal(input, other): as `F.ne`.
--- F.subtract(input, other, alpha = 1): as `F.sub`.
--- F.divide(input, other, rounding_mode?): as `F.div`.
for name, like in pairs{absolute = "abs", negative = "neg", fix = "trunc", multiply = "mul", subtract = "sub", divide = "div",
  true_divide = "div", arccos = "acos", arccosh = "acosh", arcsin = "asin", arcsinh = "asinh", arctan = "atan", arctan2 = "atan2",
  arctanh = "atanh", greater = "gt", greater_equal = "ge", less = "lt", less_equal = "le", not_equal = "ne"} do
  base.F[name], core.methods[name], raw[name] = base.F[like], core.methods[like], raw[like]
end

-- ---------------------------------------------------------------------------- sums of products

--- # Sums and products
--- F.addmm(input, mat1, mat2, beta = 1, alpha = 1): beta input + alpha mat1 mat2.
method("addmm", function(input, mat1, mat2, beta, alpha)
  return operator("addmm", {self = input, mat1 = tensor(mat1, "mat1"), mat2 = tensor(mat2, "mat2"), beta = beta, alpha = alpha})
end)
--- F.baddbmm(input, batch1, batch2, beta = 1, alpha = 1): beta input + alpha batch1 batch2, of each matrix.
--- F.addbmm(input, batch1, batch2, beta = 1, alpha = 1): likewise, and the products are added up.
for _, name in ipairs{"baddbmm", "addbmm"} do
  method(name, function(input, batch1, batch2, beta, alpha)
    return operator(name, {self = input, batch1 = tensor(batch1, "batch1"), batch2 = tensor(batch2, "batch2"), beta = beta,
      alpha = alpha})
  end)
end
--- F.addmv(input, mat, vec, beta = 1, alpha = 1): beta input + alpha mat vec.
method("addmv", function(input, mat, vec, beta, alpha)
  return operator("addmv", {self = input, mat = tensor(mat, "mat"), vec = tensor(vec, "vec"), beta = beta, alpha = alpha})
end)
--- F.addr(input, vec1, vec2, beta = 1, alpha = 1): beta input + alpha times the outer product.
method("addr", function(input, vec1, vec2, beta, alpha)
  return operator("addr", {self = input, vec1 = tensor(vec1, "vec1"), vec2 = tensor(vec2, "vec2"), beta = beta, alpha = alpha})
end)
--- F.inner(input, other): sums of products along the last dimensions.
--- F.kron(input, other): the product of Kronecker.
--- F.vdot(input, other): the sum of products of two vectors.
for _, name in ipairs{"inner", "kron", "vdot"} do
  method(name, function(input, other) return operator(name, {self = input, other = tensor(other, "the other")}) end)
end
--- F.cross(input, other, dim?): the cross product along a dimension of three.
method("cross", function(input, other, dim)
  return operator("cross", {self = input, other = tensor(other, "the other"), dim = dim})
end)
--- F.matrix_power(input, n): the product of `n` times the matrix.
method("matrix_power", function(input, n) return operator("matrix_power", {self = input, n = need(n, "n")}) end)
--- F.tensordot(a, b, dims = 2): sums of products over the last dimensions of `a` and the first ones of `b`, or over `{{of a}, {of b}}`.
define("tensordot", function(a, b, dims)
  dims = dims == nil and 2 or dims
  local of_a, of_b = {}, {}
  if base.kind(dims) == "table" then
    if base.list(dims, "the dims") ~= 2 then misfit("its dims are a number, or {{of a}, {of b}}") end
    of_a, of_b = base.integers("dimension", rawget(dims, 1)), base.integers("dimension", rawget(dims, 2))
    if #of_a ~= #of_b then misfit("a and b have one number of dims, not %d and %d", #of_a, #of_b) end
  else
    local n = #core.shape(tensor(a, "a"))
    for i = 1, base.whole(dims, "the dims", 0, n) do of_a[i], of_b[i] = n - dims + i - 1, i - 1 end
  end
  return operator("tensordot", {self = tensor(a, "a"), other = tensor(b, "b"), dims_self = of_a, dims_other = of_b})
end)
--- F.cdist(x1, x2, p = 2, compute_mode?): the distances of all rows of one from all of the other.
define("cdist", function(x1, x2, p, compute_mode)
  return operator("cdist", {x1 = tensor(x1, "x1"), x2 = tensor(x2, "x2"), p = p == nil and 2 or p})
end)
--- F.det(input): determinants. `F.logdet` gives their logarithms, `F.inverse` the inverse matrices.
method("det", function(input) return operator("linalg_det", {A = input}) end)
--- F.logdet(input): see `F.det`.
method("logdet", function(input) return operator("logdet", {self = input}) end)
--- F.inverse(input): see `F.det`.
method("inverse", function(input) return operator("linalg_inv", {A = input}) end)
--- F.linalg_cholesky(input, upper = false): the lower triangle whose product with its transposed one is the matrix.
define("linalg_cholesky", function(input, upper)
  return operator("linalg_cholesky", {A = tensor(input, "input"), upper = upper})
end)
--- F.linalg_solve(A, B, left = true): x with `A x = B`, or with `x A = B` where not `left`.
define("linalg_solve", function(A, B, left)
  return operator("linalg_solve", {A = tensor(A, "A"), B = tensor(B, "B"), left = left})
end)
--- F.linalg_qr(A, mode = "reduced"): Q and R. mode: `"reduced"`; `"r"`: only R; `"complete"`: if no matrix has more rows than
--- columns.
define("linalg_qr", function(A, mode) return operator("linalg_qr", {A = tensor(A, "A"), mode = mode}) end)
--- F.linalg_eigh(input, UPLO = "L"): eigenvalues of symmetric matrices, ascending, and eigenvectors in columns. UPLO: the triangle
--- that is read, `"L"` or `"U"`. On CPUs only, by LAPACK.
define("linalg_eigh", function(input, UPLO) return operator("linalg_eigh", {self = tensor(input, "input"), UPLO = UPLO}) end)
--- F.linalg_eigvalsh(input, UPLO = "L"): the eigenvalues of `F.linalg_eigh`.
define("linalg_eigvalsh", function(input, UPLO)
  return operator("linalg_eigvalsh", {self = tensor(input, "input"), UPLO = UPLO})
end)
--- F.linalg_svd(A, full_matrices = true): U, the singular values and V, transposed. On CPUs only, by LAPACK.
define("linalg_svd", function(A, full_matrices)
  return operator("linalg_svd", {A = tensor(A, "A"), full_matrices = full_matrices})
end)
--- F.linalg_svdvals(A): the singular values of `F.linalg_svd`.
define("linalg_svdvals", function(A) return operator("linalg_svdvals", {A = tensor(A, "A")}) end)
--- F.linalg_pinv(input, atol?, rtol?, hermitian = false): the pseudo-inverse by `F.linalg_svd`. Values of at most the greater one of
--- atol and rtol times the greatest count as 0.
define("linalg_pinv", function(input, atol, rtol, hermitian)
  return operator("linalg_pinv", {self = tensor(input, "input"), atol = atol, rtol = rtol, hermitian = hermitian})
end)
--- F.linalg_matrix_rank(input, atol?, rtol?, hermitian = false): how many singular values do not count as 0, as in `F.linalg_pinv`.
define("linalg_matrix_rank", function(input, atol, rtol, hermitian)
  return operator("linalg_matrix_rank", {input = tensor(input, "input"), atol = atol, rtol = rtol, hermitian = hermitian})
end)

-- ---------------------------------------------------------------------------------- along dimensions

--- F.nansum(input, dim?, keepdim = false, dtype?): `F.sum` of what is a number.
--- F.nanmean(input, dim?, keepdim = false, dtype?): likewise the mean.
for _, name in ipairs{"nansum", "nanmean"} do
  method(name, function(input, dim, keepdim, dtype)
    return operator(name, {self = input, dim = dim, keepdim = keepdim, dtype = dtype and base.type_name(dtype)})
  end)
end
--- F.count_nonzero(input, dim?): how many are not 0.
method("count_nonzero", function(input, dim) return operator("count_nonzero", {self = input, dim = dim}) end)
--- F.aminmax(input, dim?, keepdim = false): the least and the largest element.
method("aminmax", function(input, dim, keepdim) return operator("aminmax", {self = input, dim = dim, keepdim = keepdim}) end)
--- F.median(input, dim?, keepdim = false): the middle one by size, and along a dimension its index.
method("median", function(input, dim, keepdim) return operator("median", {self = input, dim = dim, keepdim = keepdim}) end)
--- F.kthvalue(input, k, dim = -1, keepdim = false): the k-th one by size, from 1, and its index.
method("kthvalue", function(input, k, dim, keepdim)
  return operator("kthvalue", {self = input, k = base.whole(k, "k", 1), dim = dim == nil and -1 or dim, keepdim = keepdim})
end)
--- F.logcumsumexp(input, dim): the logarithm of running sums of exponentials.
method("logcumsumexp", function(input, dim) return operator("logcumsumexp", {self = input, dim = need(dim, "dim")}) end)
--- F.dist(input, other, p = 2): the norm of the difference.
method("dist", function(input, other, p) return operator("dist", {self = input, other = tensor(other, "the other"), p = p}) end)
--- F.trace(input): the sum of the diagonal.
method("trace", function(input) return operator("trace", {self = input}) end)
--- F.diff(input, n = 1, dim = -1, prepend?, append?): differences of neighbours, n times.
method("diff", function(input, n, dim, prepend, append)
  local y = input
  for i = 1, base.whole(n == nil and 1 or n, "n", 0, 64) do
    y = operator("diff", {self = y, dim = dim, prepend = i == 1 and prepend or nil, append = i == 1 and append or nil})
  end
  return y
end)

-- -------------------------------------------------------------------------------------- rearranged

--- # Rearranged
--- F.ravel(input): `F.flatten` of all.
method("ravel", function(input) return raw.flatten(input) end)
--- F.fliplr(input): `F.flip` of dimension 1.
method("fliplr", function(input) return raw.flip(input, 1) end)
--- F.flipud(input): `F.flip` of dimension 0.
method("flipud", function(input) return raw.flip(input, 0) end)
--- F.rot90(input, k = 1, dims = {0, 1}): turned by k quarters.
method("rot90", function(input, k, dims) return operator("rot90", {self = input, k = k, dims = dims}) end)
--- F.swapaxes(input, axis0, axis1): as `F.transpose`.
method("swapaxes", function(input, axis0, axis1) return raw.transpose(input, axis0, axis1) end)
--- F.swapdims(input, dim0, dim1): as `F.transpose`.
method("swapdims", function(input, dim0, dim1) return raw.transpose(input, dim0, dim1) end)
--- F.movedim(input, source, destination): dimensions in other places, the others in their order.
--- F.moveaxis(input, source, destination): as `F.movedim`.
for _, name in ipairs{"movedim", "moveaxis"} do
  method(name, function(input, source, destination)
    local function listed(v, what)
      if base.kind(v) ~= "table" then v = {v} end
      local list = {}
      for i = 1, base.list(v, what) do list[i] = base.whole(rawget(v, i), what) end
      return list
    end
    return operator("movedim", {self = input, source = listed(source, "the source"),
      destination = listed(destination, "the destination")})
  end)
end
--- F.adjoint(input): the last two dimensions swapped.
method("adjoint", function(input) return raw.transpose(input, -2, -1) end)
--- F.diag(input, diagonal = 0): the diagonal of a matrix, or the matrix of a diagonal.
method("diag", function(input, diagonal) return operator("diag", {self = input, diagonal = diagonal}) end)
--- F.diag_embed(input, offset = 0, dim1 = -2, dim2 = -1): matrices of diagonals, in two new dimensions.
method("diag_embed", function(input, offset, dim1, dim2)
  local y = operator("diag_embed", {self = input, offset = offset})
  dim1, dim2 = dim1 == nil and -2 or dim1, dim2 == nil and -1 or dim2
  if dim1 == -2 and dim2 == -1 then return y end
  local shape = core.shape(y)
  local first, second = base.dimension(shape, dim1), base.dimension(shape, dim2)
  if first == second then misfit("dim1 and dim2 are one dimension") end
  return operator("movedim", {self = y, source = {-2, -1}, destination = {first, second}})
end)
--- F.tensor_split(input, indices_or_sections, dim = 0, sections?, indices?): parts that differ by one at most, or that begin at indices.
method("tensor_split", function(input, indices_or_sections, dim, sections, indices)
  local v = indices_or_sections
  if v == nil then v = sections end
  if v == nil then v = indices end
  local is_list = base.kind(v) == "table"
  return operator("tensor_split", {self = input, sections = not is_list and base.whole(v, "the sections", 1) or nil,
    indices = is_list and base.integers("index", v) or nil, dim = dim == nil and 0 or dim})
end)

--- F.hstack(tensors): `F.cat` along dimension 1, of vectors along dimension 0.
--- F.vstack(tensors): `F.cat` along dimension 0; vectors are rows.
for _, name in ipairs{"hstack", "vstack"} do
  define(name, function(tensors)
    local list = {}
    for i = 1, base.list(need(tensors, "the tensors"), "the tensors") do list[i] = tensor(rawget(tensors, i), "each") end
    return operator(name, {tensors = list})
  end)
end
--- F.block_diag(...): a matrix of matrices along its diagonal.
define("block_diag", function(...)
  local list = {...}
  for i = 1, #list do list[i] = tensor(list[i], "each") end
  return operator("block_diag", {tensors = list})
end, "tensors")
--- F.eye(n, m?, dtype = "float32"): the identity.
define("eye", function(n, m, dtype)
  n = base.whole(n, "the rows", 1)
  m = m == nil and n or base.whole(m, "the columns", 1)
  return raw.to(raw.eq(raw.unsqueeze(raw.arange(n), 1), raw.arange(m)), dtype == nil and "float32" or base.type_name(dtype))
end)

--- # Indices
--- F.take_along_dim(input, indices, dim?): `F.gather` of indices that are broadcast.
method("take_along_dim", function(input, indices, dim)
  return operator("take_along_dim", {self = input, indices = tensor(indices, "the indices"), dim = dim})
end)
--- F.index_fill(input, dim, index, value): the value at indices of a dimension.
method("index_fill", function(input, dim, index, value)
  return operator("index_fill", {self = input, dim = need(dim, "dim"), index = tensor(index, "the index"),
    value = need(value, "the value")})
end)
--- F.index_copy(input, dim, index, source): `source` at indices of a dimension.
method("index_copy", function(input, dim, index, source)
  return operator("index_copy", {self = input, dim = need(dim, "dim"), index = tensor(index, "the index"),
    source = tensor(source, "the source")})
end)
--- F.masked_scatter(input, mask, source): elements of `source`, in their order, where `mask` is true.
method("masked_scatter", function(input, mask, source)
  return operator("masked_scatter", {self = input, mask = tensor(mask, "the mask"), source = tensor(source, "the source")})
end)

-- ------------------------------------------------------------------------------- of a tensor itself

--- # Shapes
--- x:reshape_as(input, other): `F.reshape` to the other's sizes.
--- x:type_as(input, other): `F.to` the other's type.
--- x:numel(input): how many elements it has. `x:nelement()` likewise.
--- x:nelement(input): see `x:numel()`.
--- x:ndimension(input): how many dimensions it has.
--- x:is_floating_point(input): whether it is of floats.
--- x:new_zeros(input, size, dtype?): zeros of its type.
--- x:new_ones(input, size, dtype?): ones of its type.
--- x:new_full(input, size, fill_value, dtype?): a value in its type.
--- x:unfold(input, dimension, size, step): windows along a dimension; the elements of one are the last dimension.
as_method("reshape_as", function(input, other) return raw.reshape(input, core.shape(tensor(other, "the other"))) end)
as_method("type_as", function(input, other) return raw.to(input, core.type(tensor(other, "the other"))) end)
as_method("numel", function(input) return base.elements(core.shape(input)) end)
as_method("nelement", function(input) return base.elements(core.shape(input)) end)
as_method("ndimension", function(input) return #core.shape(input) end)
as_method("is_floating_point", function(input) return base.is_floating(input) end)
for name, value in pairs{new_zeros = 0, new_ones = 1} do
  as_method(name, function(input, size, dtype)
    return raw.full(base.integers("size", size), value, dtype and base.type_name(dtype) or core.type(input))
  end)
end
as_method("new_full", function(input, size, fill_value, dtype)
  return raw.full(base.integers("size", size), need(fill_value, "the fill_value"), dtype and base.type_name(dtype) or core.type(input))
end)
as_method("unfold", function(input, dimension, size, step)
  return operator("unfold", {self = input, dimension = base.whole(dimension, "the dimension"), size = base.whole(size, "the size", 1),
    step = base.whole(step, "the step", 1)})
end)

-- Others of these files: images and more (torch_layers.lua).
base.operator_of_torch, base.needed = operator, need
