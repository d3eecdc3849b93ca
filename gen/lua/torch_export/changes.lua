-- changes.lua: programs that change tensors in place. Here no operation changes a tensor: a change makes a new value.
-- The base of a changed view gets a new value, too; other views of this base are made anew where they are read.
local core, base = ...
local fail, raw, constants, torch = base.fail, base.raw, base.constants, base.torch
local operators = base.torch_operators
local short, put_back, is_complex = torch.short, torch.put_back, torch.is_complex

local function tensor_of(v) return constants.is(v) and constants.tensor(v) or v end
local FLOATS = {float32 = true, bfloat16 = true}

-- ------------------------------------------------------------------------- the way back from a view

-- WRITE[name](whole, part, a, i, parts): `whole` where the i-th view of it, made with the arguments `a`, is `part`. parts:
-- the shapes of all views that were made with it.
local function same_elements(whole, part) return base.view(part, core.shape(whole)) end

-- order(a, shape): for each dimension of the view that of the whole.
local function transposed(order)
  return function(whole, part, a)
    local back = {}
    for i, d in ipairs(order(a, core.shape(whole))) do back[d + 1] = i - 1 end
    return #back == 0 and part or raw.permute(part, back)
  end
end

local function counted(n)
  local dims = {}
  for i = 1, n do dims[i] = i - 1 end
  return dims
end

local function exchanged(first, second)
  return transposed(function(a, shape)
    local dims = counted(#shape)
    if #shape == 0 then return dims end
    local d, e = base.dimension(shape, type(first) == "string" and a[first] or first),
      base.dimension(shape, type(second) == "string" and a[second] or second)
    dims[d + 1], dims[e + 1] = dims[e + 1], dims[d + 1]
    return dims
  end)
end

local function one_of(whole, part, d, index)
  local shape = core.shape(whole)
  d = base.dimension(shape, d)
  return put_back(whole, raw.unsqueeze(part, d), d, index < 0 and index + shape[d + 1] or index, 1)
end

-- One of several adjacent parts along a dimension.
local function one_of_parts(dim)
  return function(whole, part, a, i, parts)
    local shape, first = core.shape(whole), 0
    local d = base.dimension(shape, dim(a, shape))
    for k = 1, i - 1 do first = first + parts[k][d + 1] end
    return put_back(whole, part, d, first, core.shape(part)[d + 1])
  end
end
local function along_dim(a) return a.dim or 0 end

-- If an expanded dimension shows one element several times, only a change that makes all elements equal may
-- change it.
local function expanded(whole, part)
  local shape, sizes = core.shape(whole), core.shape(part)
  for d = 1, #sizes do
    local own = shape[d - (#sizes - #shape)] or 1
    if own ~= sizes[d] then part = raw.narrow(part, d - 1, 0, 1) end
  end
  return base.view(part, shape)
end

local WRITE = {
  transpose = exchanged("dim0", "dim1"), swapdims = exchanged("dim0", "dim1"), swapaxes = exchanged("axis0", "axis1"),
  mT = exchanged(-2, -1),
  t = function(_, part) return raw.t(part) end,
  numpy_T = transposed(function(_, shape)
    local dims = {}
    for i = 1, #shape do dims[i] = #shape - i end
    return dims
  end),
  permute = transposed(function(a, shape)
    local dims = {}
    for i, d in ipairs(a.dims) do dims[i] = base.dimension(shape, d) end
    return dims
  end),
  movedim = transposed(function(a, shape) return torch.moved_dimensions(a, shape) end),
  select = function(whole, part, a) return one_of(whole, part, a.dim, a.index) end,
  unbind = function(whole, part, a, i) return one_of(whole, part, a.dim or 0, i - 1) end,
  slice = function(whole, part, a)
    local shape = core.shape(whole)
    local d = base.dimension(shape, a.dim or 0)
    local first, count = torch.slice_of(shape[d + 1], a.start, a["end"])
    return torch.put_every(whole, part, d, first, count, a.step or 1)
  end,
  narrow = function(whole, part, a)
    local shape = core.shape(whole)
    local d = base.dimension(shape, a.dim)
    return put_back(whole, part, d, a.start < 0 and a.start + shape[d + 1] or a.start, a.length)
  end,
  diagonal = function(whole, part, a) return torch.put_diagonal(whole, part, a) end,
  unfold = function(whole, part, a) return torch.put_windows(whole, part, a) end,
  as_strided = function(whole, part, a) return torch.put_strided(whole, part, a) end,
  hsplit = one_of_parts(function(_, shape) return #shape == 1 and 0 or 1 end),
  vsplit = one_of_parts(function() return 0 end), dsplit = one_of_parts(function() return 2 end),
}
for name in string.gmatch("view reshape _unsafe_view flatten unflatten unsqueeze squeeze view_as reshape_as ravel alias detach "
  .. "contiguous positive to type_as dropout lift_fresh resolve_conj resolve_neg conj_physical atleast_1d atleast_2d "
  .. "atleast_3d real conj _conj", "%S+") do
  WRITE[name] = same_elements
end
WRITE._neg_view = function(_, part) return raw.neg(part) end
for name in string.gmatch("split split_with_sizes chunk tensor_split unsafe_split unsafe_split_with_sizes unsafe_chunk", "%S+") do
  WRITE[name] = one_of_parts(along_dim)
end
for name in string.gmatch("expand expand_as broadcast_to broadcast_tensors", "%S+") do WRITE[name] = expanded end
for name, first in pairs{mH = "mT", matrix_H = "mT", adjoint = "mT", moveaxis = "movedim", linalg_diagonal = "diagonal"} do
  WRITE[name] = WRITE[first]
end
-- Whether several elements of the view are one in memory.
local function shows_twice(view, whole, part)
  local a = view.arguments
  if WRITE[view.operator] == expanded then return base.elements(core.shape(part)) > base.elements(core.shape(whole)) end
  if view.operator == "as_strided" then return torch.strides_overlap(a.size, a.stride) end
  return view.operator == "unfold" and a.step < a.size and core.shape(part)[base.dimension(core.shape(whole), a.dimension) + 1] > 1
end

-- The same where one of the two is complex.
local WRITE_COMPLEX = {
  view_as_complex = function(_, part) return raw.stack({part.re, part.im}, -1) end,
  view_as_real = function(_, part) return torch.complex(raw.select(part, -1, 0), raw.select(part, -1, 1)) end,
  real = function(whole, part) return torch.complex(part, whole.im) end,
  imag = function(whole, part) return torch.complex(whole.re, part) end,
  conj = function(_, part) return torch.conjugate(part) end,
}
WRITE_COMPLEX._conj = WRITE_COMPLEX.conj
for _, name in ipairs{"mH", "matrix_H", "adjoint"} do
  WRITE_COMPLEX[name] = function(_, part) return torch.conjugate(torch.complex(raw.transpose(part.re, -2, -1), raw.transpose(part.im, -2, -1))) end
end

local function written(view, whole, part)
  local name, a, i = view.operator, view.arguments, view.place
  if WRITE_COMPLEX[name] and (is_complex(whole) or is_complex(part)) then return WRITE_COMPLEX[name](whole, part) end
  local f, parts = WRITE[name], view.parts
  if is_complex(whole) then
    return torch.complex(f(whole.re, part.re, a, i, parts), f(whole.im, part.im, a, i, parts))
  end
  return f(whole, part, a, i, parts)
end

-- --------------------------------------------------------------------------------- what is known of it

-- The state of values in a program with changes, by name. about: {path = the archive, layout(name) = what the archive says
-- of a value's memory, parameters = by name the paths of those that are parameters, twins = of inputs that share memory the
-- others' names, needs_gradient = the parameters that are trained}.
function torch.new_changes(about)
  for _, key in ipairs{"view_of", "version", "stale", "renamed", "is_conjugate", "is_negative"} do about[key] = {} end
  return about
end

-- `new`, through which the gradient flows to `old` as if nothing had changed: so PyTorch's autograd sees a change under
-- torch.no_grad(), and one of a detached tensor.
local function unseen(old, new)
  if is_complex(old) then return torch.complex(unseen(old.re, new.re), unseen(old.im, new.im)) end
  if not FLOATS[core.type(old)] then return new end
  return raw.add(raw.detach(new), raw.sub(old, raw.detach(old)))
end

-- A value whose storage changed after it was read is made anew where it is read again.
local function up_to_date(name, values, shared)
  if shared.stale[name] then
    fail("torch_export: %s reads %s after %s has changed it, which is not supported", shared.path, name, shared.stale[name])
  end
  local view = shared.view_of[name]
  if not view then return end
  up_to_date(view.parent, values, shared)
  local version = shared.version[view.parent] or 0
  if view.version == version then return end
  if view.is_unknown then
    fail("torch_export: %s reads what %s gave of a tensor that is changed in place since, and it cannot be known whether it is "
      .. "a view or a copy: write .clone() there", shared.path, view.target)
  end
  view.version = version
  shared.version[name] = (shared.version[name] or 0) + 1
  local made = view.make()
  -- Autograd knows a detached tensor by what has changed it itself.
  local has_own_gradient = view.operator == "detach" and shared.needs_gradient[name]
  values[name] = has_own_gradient and unseen(tensor_of(values[name]), tensor_of(made)) or made
end

-- Before a node, or the caller, reads the value.
function torch.before_read(name, values, shared)
  if shared.renamed[name] then
    fail("torch_export: %s reads %s under the name that it had before %s, which is not supported", shared.path, name,
      shared.renamed[name])
  end
  up_to_date(name, values, shared)
end

local function without_gradient(v)
  if is_complex(v) then return torch.complex(raw.detach(v.re), raw.detach(v.im)) end
  if constants.is(v) or not FLOATS[core.type(v)] then return v end
  return raw.detach(v)
end

-- The new value in the type and shape of the tensor that it takes the place of.
local function like(old, new)
  if is_complex(old) or is_complex(new) then
    if not is_complex(old) then fail("a change in place cannot make complex numbers of real ones") end
    return is_complex(new) and new or torch.of_complex("to", {self = tensor_of(new), dtype = "complex64"})
  end
  local shape = constants.is(old) and old.shape or core.shape(old)
  local kind = constants.is(old) and old.type or core.type(old)
  if constants.is(new) and new.type == kind and base.same_shape(new.shape, shape) then return new end
  new = tensor_of(new)
  if core.type(new) ~= kind then new = raw.to(new, kind) end
  return base.same_shape(core.shape(new), shape) and new or raw.expand(new, shape)
end

local function check_change(name, shared, how)
  local parameter, twins = shared.parameters[name], shared.twins[name]
  if parameter and not how.renorms then
    fail("torch_export: %s changes its parameter %s in place, as it goes forward, which is not supported", shared.path, parameter)
  end
  if parameter and shared.needs_gradient[name] then
    fail("torch_export: %s scales rows of its parameter %s in place, as it goes forward (max_norm of nn.Embedding): that is "
      .. "there in infer, or where the parameter requires no gradient", shared.path, parameter)
  end
  if twins then
    fail("torch_export: %s changes %s in place, which shares its memory with %s: this is not supported", shared.path, name, twins)
  end
end

local function check_change_of_view(view, whole, part, shared, how)
  if view.is_unknown then
    fail("torch_export: %s changes in place what %s gave, and it cannot be known whether that is a view or a copy: write "
      .. ".clone() there", shared.path, view.target)
  end
  if not WRITE[view.operator] and not WRITE_COMPLEX[view.operator] then
    fail("torch_export: %s changes in place a view by %s, which is not supported: write .clone() before the change", shared.path,
      view.target)
  end
  if not is_complex(whole) and not is_complex(part) and shows_twice(view, whole, part) and not how.makes_equal then
    fail("torch_export: %s changes in place a view by %s that has several elements at one place in memory", shared.path, view.target)
  end
end

-- The value has changed: so has the base of this view. how: {is_unseen = autograd does not see it, needs_gradient = of
-- the new value, makes_equal = all elements are one number, renorms = rows of an embedding get shorter}.
local function change(name, new, values, shared, how)
  check_change(name, shared, how)
  local view, old = shared.view_of[name], values[name]
  new = like(old, new)
  if not how.is_unseen then
    shared.needs_gradient[name] = shared.needs_gradient[name] or how.needs_gradient
  elseif base.training then
    new = shared.needs_gradient[name] and unseen(tensor_of(old), tensor_of(new)) or without_gradient(new)
  end
  values[name] = new
  shared.version[name] = (shared.version[name] or 0) + 1
  if not view then return end
  local whole, part = tensor_of(values[view.parent]), tensor_of(new)
  check_change_of_view(view, whole, part, shared, how)
  if view.operator == "detach" then how = setmetatable({is_unseen = true}, {__index = how}) end
  change(view.parent, written(view, whole, part), values, shared, how)
  view.version = shared.version[view.parent]
end

local MAKES_EQUAL = {zero_ = true, fill_ = true}
local CONJUGATES = {conj = true, _conj = true, mH = true, matrix_H = true, adjoint = true}

-- Notes whether the view is stored as its conjugate or its negative; and whether the operator, which gives a tensor that is
-- stored as it is, has to make a copy for that.
local function copies_stored(operator, from, out, values, shared)
  local is_conjugate = shared.is_conjugate[from] or false
  local is_negative = (shared.is_negative[from] or false) ~= (operator == "_neg_view" or operator == "imag" and is_conjugate)
  if CONJUGATES[operator] and is_complex(values[from]) then is_conjugate = not is_conjugate end
  if operator == "imag" or operator == "real" then is_conjugate = false end
  if operator == "resolve_conj" and is_conjugate or operator == "resolve_neg" and is_negative then return true end
  shared.is_conjugate[out], shared.is_negative[out] = is_conjugate, is_negative
  return false
end

-- The first tensor is changed, and the result is it.
local function change_first(of, out, node, operator, values, shared)
  change(of, values[out], values, shared, {is_unseen = node.is_no_grad or false, needs_gradient = shared.needs_gradient[out],
    makes_equal = MAKES_EQUAL[short(node.target)] or false, renorms = operator == "embedding_renorm"})
  values[out], shared.needs_gradient[out] = values[of], shared.needs_gradient[of]
  shared.is_conjugate[out], shared.is_negative[out] = shared.is_conjugate[of], shared.is_negative[of]
  shared.view_of[out] = {parent = of, version = shared.version[of], operator = "alias", target = node.target,
    make = function() return values[of] end}
end

local function note_views(outputs, node, operator, arguments, values, shared, again)
  local parts = {}
  for i, out in ipairs(outputs) do
    local v = values[out]
    parts[i] = is_complex(v) and core.shape(v.re) or constants.is(v) and v.shape or core.is_tensor(v) and core.shape(v) or {}
    local from, is_unknown = torch.shares(node, i, shared.layout, out)
    if from and values[from] ~= nil and v ~= nil and not copies_stored(operator, from, out, values, shared) then
      shared.view_of[out] = {parent = from, version = shared.version[from] or 0, operator = operator, arguments = arguments,
        place = i, parts = parts, target = node.target, is_unknown = is_unknown, make = function() return again(i) end}
    end
  end
end

-- A node has given its results, whose names are `outputs`: notes the views among them, and changes what it changes.
-- again(i): computes the i-th one anew. Under torch.no_grad() no gradient flows into what is made, but still to what is
-- changed.
function torch.follow(node, operator, arguments, outputs, values, shared, again)
  local reads_gradient = false
  torch.each_input(node, function(input) reads_gradient = reads_gradient or shared.needs_gradient[input] or false end)
  if node.is_no_grad or operator == "detach" then reads_gradient = false end
  for _, out in ipairs(outputs) do shared.needs_gradient[out] = reads_gradient end
  local changed = torch.changed_values(node)
  if torch.RENAMED[short(node.target)] then
    shared.renamed[changed[1]] = node.target
  elseif torch.is_in_place(short(node.target)) and #changed == 1 and #outputs == 1 then
    return change_first(changed[1], outputs[1], node, operator, values, shared)
  else
    for _, name in ipairs(changed) do shared.stale[name] = node.target end
  end
  if node.is_no_grad and base.training then
    local made = again
    again = function(i) return without_gradient(made(i)) end
    for _, out in ipairs(outputs) do
      if core.is_tensor(values[out]) or is_complex(values[out]) then values[out] = without_gradient(values[out]) end
    end
  end
  note_views(outputs, node, operator, arguments, values, shared, again)
end
