-- torch_composed.lua: operators of exported programs that are made of others: second names, windows of a tensor, one
-- step of a recurrence, products of several tensors.
local core, base = ...
local raw, constants, fail, torch = base.raw, base.constants, base.fail, base.torch
local operators, on_constants, is_tensor = base.torch_operators, base.torch_on_constants, core.is_tensor

-- Second names of PyTorch's, with the same arguments.
for name, first in pairs{multiply = "mul", subtract = "sub", divide = "div", true_divide = "div", negative = "neg",
  absolute = "abs", clip = "clamp", concat = "cat", concatenate = "cat", greater = "gt", greater_equal = "ge",
  less = "lt", less_equal = "le", not_equal = "ne"} do
  operators[name] = operators[name] or operators[first]
  on_constants[name] = on_constants[name] or on_constants[first]
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

-- The windows of images [b, c, h, w] that a convolution looks at: [b, c kernel, windows].
operators.im2col = function(a)
  local kernel, dilation, stride, border = a.kernel_size, a.dilation, a.stride, a.padding
  local x = raw.pad(a.self, {border[2], border[2], border[1], border[1]})
  local shape, list, out = core.shape(x), {}, {}
  if #shape ~= 4 then fail("im2col is there of [batch, channels, height, width] alone") end
  for i = 1, 2 do out[i] = (shape[i + 2] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 end
  for i = 0, kernel[1] - 1 do
    local first = i * dilation[1]
    local rows = operators.slice{self = x, dim = 2, start = first, ["end"] = first + (out[1] - 1) * stride[1] + 1,
      step = stride[1]}
    for j = 0, kernel[2] - 1 do
      first = j * dilation[2]
      list[#list + 1] = operators.slice{self = rows, dim = 3, start = first,
        ["end"] = first + (out[2] - 1) * stride[2] + 1, step = stride[2]}
    end
  end
  return base.view(raw.stack(list, 2), {shape[1], shape[2] * #list, out[1] * out[2]})
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

-- Three tensors and more: the first two, and so on. A letter stays as long as something behind has it.
operators.einsum = function(a)
  local list = table.move(a.tensors, 1, #a.tensors, 1, {})
  local equation = string.gsub(a.equation, "%s", "")
  local left, out = string.match(equation, "^([%a,]+)%->(%a*)$")
  if #list < 3 or not left then return raw.einsum(a.equation, table.unpack(list)) end
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
