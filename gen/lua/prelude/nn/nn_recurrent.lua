-- nn_recurrent.lua: LSTM, GRU and RNN, and their cells, as in torch.nn.
local core, base, plan = ...
local fail = base.fail
local nn, F = plan.nn, base.F
local own_class, flag = base.own_class, base.checked_flag

local of = {}        -- the functions, whatever a plan does to F
for name, f in pairs(F) do of[name] = f end

local LARGEST = 1 << 40

-- ---------------------------------------------------------------------------------------- the steps

-- The tensors of a parameter that styles keep in parts, one for each gate; else the one tensor.
local function parts_of(t) return t and (core.parts(t) or {t}) or {} end

-- The products of x with the gates' weights, one tensor for all gates or one for each.
local function products(x, weight, ...)
  local list, biases = {}, {}
  for i = 1, select("#", ...) do
    local parts = parts_of((select(i, ...)))
    if #parts > 0 then biases[#biases + 1] = parts end
  end
  for k, w in ipairs(parts_of(weight)) do
    local bias
    for _, parts in ipairs(biases) do bias = bias and bias + parts[k] or parts[k] end
    list[k] = of.linear(x, w, bias)
  end
  return list
end

-- The inputs of the gates: n tensors.
local function by_gate(list, n)
  if #list == n then return list end
  return table.pack(of.chunk(list[1], n, -1))
end

local function sums(a, b)
  local list = {}
  for k, x in ipairs(a) do list[k] = x + b[k] end
  return list
end

-- By kind: the number of gates; whether both biases go into the products of the inputs; the names of
-- what is carried; and a step: from these and the products of the input it gives the new ones.
local KINDS = {
  LSTM = {gates = 4, both = true, carried = {"h", "c"}, step = function(state, x, p)
    local gate = by_gate(sums(x, products(state.h, p.weight_hh)), 4)
    local c = gate[2]:sigmoid() * state.c + gate[1]:sigmoid() * gate[3]:tanh()
    return {h = gate[4]:sigmoid() * c:tanh(), c = c}
  end},
  GRU = {gates = 3, both = false, carried = {"h"}, step = function(state, x, p)
    local from = by_gate(x, 3)
    local back = by_gate(products(state.h, p.weight_hh, p.bias_hh), 3)
    local r, z = (from[1] + back[1]):sigmoid(), (from[2] + back[2]):sigmoid()
    local n = (from[3] + r * back[3]):tanh()
    return {h = n + z * (state.h - n)}
  end},
  RNN = {gates = 1, both = true, carried = {"h"}, step = function(state, x, p, how)
    local sum = sums(x, products(state.h, p.weight_hh))[1]
    return {h = how.relu and sum:relu() or sum:tanh()}
  end},
}

-- The products of the inputs of a step, or of all steps at once.
local function of_inputs(kind, x, p)
  return products(x, p.weight_ih, p.bias_ih, kind.both and p.bias_hh or nil)
end

-- ----------------------------------------------------------------------------------------- modules

local function sizes(who, input_size, hidden_size)
  return base.integer(input_size, who .. "'s input size", 1, LARGEST),
    base.integer(hidden_size, who .. "'s hidden size", 1, LARGEST)
end

-- The parameters of one layer and direction; adds their names after the suffix to the list.
local function add_parameters(self, keys, who, kind, inputs, hidden, bias, suffix)
  local bound = 1 / math.sqrt(hidden)
  local function add(name, shape)
    self[name .. suffix] = core.parameter(who, shape, "uniform", -bound, bound)
    keys[#keys + 1] = name .. suffix
  end
  add("weight_ih", {kind.gates * hidden, inputs})
  add("weight_hh", {kind.gates * hidden, hidden})
  if not bias then return end
  add("bias_ih", {kind.gates * hidden})
  add("bias_hh", {kind.gates * hidden})
end

local function parameters_of(self, suffix)
  local p = {}
  for _, name in ipairs{"weight_ih", "weight_hh", "bias_ih", "bias_hh"} do p[name] = self[name .. suffix] end
  return p
end

local function with_activation(who, nonlinearity)
  if nonlinearity == nil or nonlinearity == "tanh" then return false end
  if nonlinearity == "relu" then return true end
  fail('%s\'s nonlinearity is "tanh" or "relu", not %s', who, base.a(nonlinearity))
end

local function recurrent(who, kind, input_size, hidden_size, num_layers, how)
  local inputs, hidden = sizes(who, input_size, hidden_size)
  local self, keys = {input_size = inputs, hidden_size = hidden}, {"input_size", "hidden_size"}
  how.layers = base.integer(num_layers == nil and 1 or num_layers, who .. "'s number of layers", 1, 1024)
  how.bias = flag(how.bias, who .. "'s bias")
  how.batch_first = how.batch_first ~= nil and base.boolean(how.batch_first, who .. "'s batch_first")
  how.dropout = base.number(how.dropout == nil and 0 or how.dropout, who .. "'s dropout", 0, 1)
  local both = how.bidirectional ~= nil and base.boolean(how.bidirectional, who .. "'s bidirectional")
  how.directions = both and {"", "_reverse"} or {""}
  for layer = 0, how.layers - 1 do
    for _, direction in ipairs(how.directions) do
      add_parameters(self, keys, who, kind, layer == 0 and inputs or #how.directions * hidden, hidden,
        how.bias, "_l" .. layer .. direction)
    end
  end
  return self, how, keys
end

-- The first state that the plan gives, by name; each [layers * directions, batch, hidden].
local function given_state(who, kind, hx)
  if hx == nil then return nil end
  local state = {}
  if #kind.carried == 1 then
    state.h = hx
  else
    if base.kind(hx) ~= "table" then fail("%s's first state is {h, c}, not %s", who, base.a(hx)) end
    state.h, state.c = rawget(hx, 1), rawget(hx, 2)
  end
  for _, name in ipairs(kind.carried) do
    if not base.is_tensor(state[name]) then
      fail("%s's first %s is a tensor, not %s", who, name, base.a(state[name]))
    end
  end
  return state
end

local function check_state(who, name, t, expected)
  if base.same_shape(core.shape(t), expected) then return end
  fail("%s's first %s has the shape %s, not %s", who, name, base.shape_text(core.shape(t)),
    base.shape_text(expected))
end

-- One layer in one direction: x is [time, batch, inputs]. Returns the outputs and the last state.
local function run_layer(kind, p, how, x, first, backwards)
  local slices = of_inputs(kind, x, p)
  for k, s in ipairs(slices) do slices[k] = backwards and of.flip(s, 0) or s end
  local last, outputs = base.scan(function(state, s)
    local new = kind.step(state, s, p, how)
    return new, new.h
  end, first, slices, 0)
  return backwards and of.flip(outputs, 0) or outputs, last
end

local function forward_of(who, kind)
  return function(self, how, x, hx)
    base.check_input(x, who)
    local shape, given = core.shape(x), given_state(who, kind, hx)
    local batched = #shape == 3
    if #shape ~= 2 and not batched or shape[#shape] ~= self.input_size then
      fail("%s takes [%s, %d] or [time, %d], not the shape %s", who,
        how.batch_first and "batch, time" or "time, batch", self.input_size, self.input_size,
        base.shape_text(shape))
    end
    if not batched then x = of.unsqueeze(x, 1) elseif how.batch_first then x = of.transpose(x, 0, 1) end
    local batch, all = core.shape(x)[2], #how.directions * how.layers
    local expected = batched and {all, batch, self.hidden_size} or {all, self.hidden_size}
    for _, name in ipairs(given and kind.carried or {}) do check_state(who, name, given[name], expected) end
    local last = {}
    for _, name in ipairs(kind.carried) do last[name] = {} end
    for layer = 0, how.layers - 1 do
      local outputs = {}
      for i, direction in ipairs(how.directions) do
        local first, number = {}, #how.directions * layer + i - 1
        for _, name in ipairs(kind.carried) do
          local h = given and of.select(given[name], 0, number)
            or of.zeros(batch, self.hidden_size, {dtype = core.type(x)})
          first[name] = given and not batched and of.unsqueeze(h, 0) or h
        end
        local output, state = run_layer(kind, parameters_of(self, "_l" .. layer .. direction), how, x, first,
          i == 2)
        outputs[i] = output
        for _, name in ipairs(kind.carried) do table.insert(last[name], state[name]) end
      end
      x = #outputs == 1 and outputs[1] or of.cat(outputs, -1)
      if how.dropout > 0 and layer + 1 < how.layers then x = of.dropout(x, how.dropout) end
    end
    local ends = {}
    for _, name in ipairs(kind.carried) do
      local t = of.stack(last[name], 0)
      ends[#ends + 1] = batched and t or of.squeeze(t, 1)
    end
    if not batched then x = of.squeeze(x, 1) elseif how.batch_first then x = of.transpose(x, 0, 1) end
    return x, #ends == 1 and ends[1] or ends
  end
end

-- nn.LSTM, nn.GRU, nn.RNN: of x [time, batch, input_size], or [batch, time, input_size] with
-- batch_first, or [time, input_size], and a first state. They give the outputs, and the last state.
-- The states of an LSTM are {h, c}.
--- # Recurrent modules
--- nn.LSTM(input_size, hidden_size, num_layers = 1, bias = true, batch_first = false, dropout = 0, bidirectional =
--- false, dtype?): of `[time, batch, input_size]`, and a first state; gives the outputs and the last state, `{h, c}`.
nn.LSTM = own_class("LSTM", {}, function(input_size, hidden_size, num_layers, bias, batch_first, dropout,
    bidirectional, proj_size, device, dtype)
  base.only_float32(dtype, "LSTM")
  return recurrent("LSTM", KINDS.LSTM, input_size, hidden_size, num_layers,
    {bias = bias, batch_first = batch_first, dropout = dropout, bidirectional = bidirectional})
end, forward_of("LSTM", KINDS.LSTM))

--- nn.GRU(input_size, hidden_size, num_layers = 1, bias = true, batch_first = false, dropout = 0, bidirectional =
--- false, dtype?): likewise; the state is a tensor.
nn.GRU = own_class("GRU", {}, function(input_size, hidden_size, num_layers, bias, batch_first, dropout,
    bidirectional, device, dtype)
  base.only_float32(dtype, "GRU")
  return recurrent("GRU", KINDS.GRU, input_size, hidden_size, num_layers,
    {bias = bias, batch_first = batch_first, dropout = dropout, bidirectional = bidirectional})
end, forward_of("GRU", KINDS.GRU))

--- nn.RNN(input_size, hidden_size, num_layers = 1, nonlinearity = "tanh", bias = true, batch_first = false, dropout =
--- 0, bidirectional = false, dtype?): likewise.
nn.RNN = own_class("RNN", {}, function(input_size, hidden_size, num_layers, nonlinearity, bias, batch_first,
    dropout, bidirectional, device, dtype)
  base.only_float32(dtype, "RNN")
  return recurrent("RNN", KINDS.RNN, input_size, hidden_size, num_layers,
    {bias = bias, batch_first = batch_first, dropout = dropout, bidirectional = bidirectional,
      relu = with_activation("RNN", nonlinearity)})
end, forward_of("RNN", KINDS.RNN))

-- ------------------------------------------------------------------------------------------- cells

local function cell(who, kind, input_size, hidden_size, bias, how)
  local inputs, hidden = sizes(who, input_size, hidden_size)
  local self, keys = {input_size = inputs, hidden_size = hidden}, {"input_size", "hidden_size"}
  add_parameters(self, keys, who, kind, inputs, hidden, flag(bias, who .. "'s bias"), "")
  return self, how, keys
end

-- x is [batch, input_size] or [input_size]. An LSTMCell gives h, c; the others give h.
local function cell_forward_of(who, kind)
  return function(self, how, x, hx)
    base.check_input(x, who)
    local shape, state = core.shape(x), given_state(who, kind, hx)
    if #shape ~= 1 and #shape ~= 2 or shape[#shape] ~= self.input_size then
      fail("%s takes [batch, %d] or [%d], not the shape %s", who, self.input_size, self.input_size,
        base.shape_text(shape))
    end
    local expected = #shape == 2 and {shape[1], self.hidden_size} or {self.hidden_size}
    local first = {}
    for _, name in ipairs(kind.carried) do
      if state then check_state(who, name, state[name], expected) end
      first[name] = state and state[name] or of.zeros(expected, {dtype = core.type(x)})
    end
    local p = parameters_of(self, "")
    local new = kind.step(first, of_inputs(kind, x, p), p, how)
    if kind.carried[2] then return new.h, new.c end
    return new.h
  end
end

--- nn.LSTMCell(input_size, hidden_size, bias = true, dtype?): one step; gives h and c.
nn.LSTMCell = own_class("LSTMCell", {}, function(input_size, hidden_size, bias, device, dtype)
  base.only_float32(dtype, "LSTMCell")
  return cell("LSTMCell", KINDS.LSTM, input_size, hidden_size, bias, {})
end, cell_forward_of("LSTMCell", KINDS.LSTM))

--- nn.GRUCell(input_size, hidden_size, bias = true, dtype?): one step; gives h.
nn.GRUCell = own_class("GRUCell", {}, function(input_size, hidden_size, bias, device, dtype)
  base.only_float32(dtype, "GRUCell")
  return cell("GRUCell", KINDS.GRU, input_size, hidden_size, bias, {})
end, cell_forward_of("GRUCell", KINDS.GRU))

--- nn.RNNCell(input_size, hidden_size, bias = true, nonlinearity = "tanh", dtype?): one step; gives h.
nn.RNNCell = own_class("RNNCell", {}, function(input_size, hidden_size, bias, nonlinearity, device, dtype)
  base.only_float32(dtype, "RNNCell")
  return cell("RNNCell", KINDS.RNN, input_size, hidden_size, bias,
    {relu = with_activation("RNNCell", nonlinearity)})
end, cell_forward_of("RNNCell", KINDS.RNN))

-- By class: the number of gates side by side in its parameters.
base.gates = {[nn.LSTM] = 4, [nn.GRU] = 3, [nn.RNN] = 1, [nn.LSTMCell] = 4, [nn.GRUCell] = 3,
  [nn.RNNCell] = 1}
