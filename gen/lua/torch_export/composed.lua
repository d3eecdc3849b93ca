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
operators.meshgrid = function(a)
  return grid(a.tensors, a.indexing, function(x) return base.elements(core.shape(x)) end, base.view, raw.expand)
end
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

operators.pixel_unshuffle = function(a)
  local s, r = core.shape(a.self), a.downscale_factor
  if #s ~= 4 or s[3] % r ~= 0 or s[4] % r ~= 0 then fail("pixel_unshuffle supports only [n, c, r y, r x]") end
  local x = raw.permute(base.view(a.self, {s[1], s[2], s[3] // r, r, s[4] // r, r}), {0, 1, 3, 5, 2, 4})
  return base.view(x, {s[1], s[2] * r * r, s[3] // r, s[4] // r})
end

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

-- Three tensors and more: the first two, and so on. A letter stays as long as something after has it.
operators.einsum = function(a)
  local list = table.move(a.tensors, 1, #a.tensors, 1, {})
  -- Capital letters are others than small ones.
  local equation, names = string.gsub(a.equation, "%s", ""), {}
  for c in string.gmatch("abcdefghijklmnopqrstuvwxyz", "%a") do
    if not string.find(equation, c, 1, true) then names[#names + 1] = c end
  end
  local small = {}
  equation = string.gsub(equation, "%u", function(c)
    small[c] = small[c] or table.remove(names)
    return small[c] or fail("einsum with more than 26 letters is not supported")
  end)
  local left, out = string.match(equation, "^([%a,]+)%->(%a*)$")
  if #list < 3 or not left then return raw.einsum(equation, table.unpack(list)) end
  local letters = {}
  for one in string.gmatch(left .. ",", "(%a*),") do letters[#letters + 1] = one end
  while #list > 2 do
    local rest, kept = out .. table.concat(letters, "", 3), ""
    for c in string.gmatch(letters[1] .. letters[2], "%a") do
      if string.find(rest, c, 1, true) and not string.find(kept, c, 1, true) then kept = kept .. c end
    end
    local y = raw.einsum(letters[1] .. "," .. letters[2] .. "->" .. kept, list[1], list[2])
    table.remove(list, 1)
    table.remove(letters, 1)
    list[1], letters[1] = y, kept
  end
  return raw.einsum(letters[1] .. "," .. letters[2] .. "->" .. out, list[1], list[2])
end
