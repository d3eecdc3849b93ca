-- composed.lua: operators of exported programs that are made of others: second names, windows of a tensor, one
-- step of a recurrence, products of several tensors.
local core, base = ...
local raw, constants, fail, torch = base.raw, base.constants, base.fail, base.torch
local operators, on_constants, is_tensor = base.torch_operators, base.torch_on_constants, core.is_tensor

-- Second names of PyTorch's, with the same arguments.
for name, first in pairs{multiply = "mul", subtract = "sub", divide = "div", true_divide = "div", negative = "neg",
  absolute = "abs", clip = "clamp", concat = "cat", concatenate = "cat", greater = "gt", greater_equal = "ge",
  less = "lt", less_equal = "le", not_equal = "ne"} do
  operators[name], on_constants[name] = operators[first], on_constants[first]
end

operators.tile = function(a) return raw.tile(a.self, a.dims) end

-- meshgrid of vectors: each of them along a dimension of its own.
local function grid(vectors, indexing, size_of, view, expand)
  local sizes, order, results = {}, {}, {}
  for i, x in ipairs(vectors) do sizes[i], order[i] = size_of(x), i end
  if indexing == "xy" and #vectors > 1 then order[1], order[2], sizes[1], sizes[2] = 2, 1, sizes[2], sizes[1] end
  for i, x in ipairs(vectors) do
    local shape = {}
    for d = 1, #vectors do shape[d] = d == order[i] and sizes[d] or 1 end
    results[i] = expand(view(x, shape), sizes)
    if not results[i] then return nil end
  end
  return table.unpack(results)
end
operators.meshgrid = function(a) return raw.meshgrid(a.tensors, a.indexing) end
on_constants.meshgrid = function(a)
  return grid(a.tensors, a.indexing, function(x) return base.elements(x.shape) end, constants.reshape, constants.expand)
end

-- ------------------------------------------------------------------------------- element by element

operators.threshold = function(a) return raw.where(raw.gt(a.self, a.threshold), a.self, a.value) end
operators.hardshrink = function(a) return raw.where(raw.gt(raw.abs(a.self), a.lambd or 0.5), a.self, 0.0) end
operators.softshrink = function(a)
  local most = a.lambd or 0.5
  return raw.sub(a.self, raw.clamp(a.self, -most, most))
end

-- ----------------------------------------------------------------------------------------- windows

-- Windows of `size` elements, `step` apart, along a dimension; the elements of one are the last dimension.
operators.unfold = function(a)
  local x, size, step = a.self, a.size, a.step
  local shape = core.shape(x)
  local d = base.dimension(shape, a.dimension)
  local n = (shape[d + 1] - size) // step + 1
  local windows, order = {}, {}
  if n < 1 then fail("unfold of %d elements makes no window of %d", shape[d + 1], size) end
  for i = 1, n do windows[i] = raw.narrow(x, d, (i - 1) * step, size) end
  local y = step == size and raw.unflatten(raw.narrow(x, d, 0, n * size), d, {n, size})
    or raw.stack(windows, d)
  for i = 0, #shape do
    if i ~= d + 1 then order[#order + 1] = i end
  end
  order[#order + 1] = d + 1
  return raw.permute(y, order)
end

operators.pixel_unshuffle = torch.calls("pixel_unshuffle", "self", "downscale_factor")

-- ---------------------------------------------------------------------------- steps of recurrences

local function gates_of(a)
  local hidden = is_tensor(a.hx) and a.hx or a.hx[1]
  return raw.linear(a.input, a.w_ih, a.b_ih), raw.linear(hidden, a.w_hh, a.b_hh), hidden
end
operators.gru_cell = function(a)
  local x, h, hidden = gates_of(a)
  return torch.gru_step(x, h, hidden)
end
operators.lstm_cell = function(a)
  local x, h = gates_of(a)
  return torch.lstm_step(raw.add(x, h), a.hx[2])
end
for _, name in ipairs{"tanh", "relu"} do
  operators["rnn_" .. name .. "_cell"] = function(a)
    local x, h = gates_of(a)
    return raw[name](raw.add(x, h))
  end
end

-- ---------------------------------------------------------------------------------------- products

operators.vdot = function(a) return raw.matmul(a.self, a.other) end

operators.einsum = function(a) return raw.einsum(a.equation, table.unpack(a.tensors)) end
