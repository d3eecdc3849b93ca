-- nn_init.lua: initial values as in torch.nn.init: nn.init.xavier_uniform() as a description, for an `init`, and
-- nn.init.xavier_uniform_(parameter) for a parameter that a module has.
local core, base, plan = ...
local fail = base.fail
local nn, init = plan.nn, plan.nn.init

-- The inputs and outputs that an element counts for, of a tensor [out, in, ...].
local function fans(shape, who)
  if #shape < 2 then fail("%s is for tensors of two dimensions and more, not %s", who, base.shape_text(shape)) end
  local taps = 1
  for i = 3, #shape do taps = taps * shape[i] end
  return shape[2] * taps, shape[1] * taps
end

local GAINS = {linear = 1, conv1d = 1, conv2d = 1, conv3d = 1, conv_transpose1d = 1, conv_transpose2d = 1, conv_transpose3d = 1,
  sigmoid = 1, tanh = 5 / 3, relu = math.sqrt(2), selu = 3 / 4}

local function gain_of(nonlinearity, param)
  if nonlinearity == "leaky_relu" then
    local slope = param == nil and 0.01 or base.finite(param, "calculate_gain's param")
    return math.sqrt(2 / (1 + slope ^ 2))
  end
  return GAINS[base.expect(nonlinearity, "string", "nn.init's nonlinearity")]
    or fail("nn.init knows no nonlinearity '%s'%s", nonlinearity, core.suggestion(nonlinearity, {"leaky_relu", "relu", "tanh",
      "sigmoid", "linear", "selu"}))
end

local function default(v, otherwise, what)
  return v == nil and otherwise or base.finite(v, what)
end

-- By name: a function of its arguments, which gives one of the shape: the kind and two numbers.
local kinds = {}

local function fixed(...)
  local kind, a, b = ...
  return function() return kind, a, b end
end
function kinds.zeros() return fixed("constant", 0.0, 0.0) end
function kinds.ones() return fixed("constant", 1.0, 0.0) end
function kinds.constant(value) return fixed("constant", base.finite(value, "nn.init.constant"), 0.0) end
function kinds.uniform(low, high)
  return fixed("uniform", default(low, 0.0, "nn.init.uniform's low"), default(high, 1.0, "nn.init.uniform's high"))
end
function kinds.normal(mean, deviation)
  return fixed("normal", default(mean, 0.0, "nn.init.normal's mean"), default(deviation, 1.0, "nn.init.normal's deviation"))
end

-- Of this standard deviation, uniform or normal.
local function spread(is_uniform, deviation)
  if is_uniform then return "uniform", -math.sqrt(3) * deviation, math.sqrt(3) * deviation end
  return "normal", 0.0, deviation
end
for _, kind in ipairs{"uniform", "normal"} do
  kinds["xavier_" .. kind] = function(gain)
    gain = default(gain, 1.0, "nn.init's gain")
    return function(shape)
      local inputs, outputs = fans(shape, "nn.init.xavier_" .. kind)
      return spread(kind == "uniform", gain * math.sqrt(2 / (inputs + outputs)))
    end
  end
  kinds["kaiming_" .. kind] = function(a, mode, nonlinearity)
    local gain = gain_of(nonlinearity == nil and "leaky_relu" or nonlinearity, default(a, 0.0, "nn.init's a"))
    if mode ~= nil and mode ~= "fan_in" and mode ~= "fan_out" then
      fail('nn.init\'s mode is "fan_in" or "fan_out", not %s', base.a(mode))
    end
    return function(shape)
      local inputs, outputs = fans(shape, "nn.init.kaiming_" .. kind)
      return spread(kind == "uniform", gain / math.sqrt(mode == "fan_out" and outputs or inputs))
    end
  end
end

-- The parameter, which begins anew.
local function begin(tensor, who, of)
  base.expect(tensor, "tensor", "what nn.init." .. who .. " is given first, a parameter,")
  core.set_init(tensor, of(core.shape(tensor)))
  return tensor
end

local made = {}
--- # Modules
--- nn.init.zeros(): initial values: zeros.
function made.zeros() return base.start_of_shape("nn.init.zeros", kinds.zeros()) end
--- nn.init.ones(): ones.
function made.ones() return base.start_of_shape("nn.init.ones", kinds.ones()) end
--- nn.init.xavier_uniform(gain = 1): uniform, by the numbers of inputs and outputs.
function made.xavier_uniform(gain) return base.start_of_shape("nn.init.xavier_uniform", kinds.xavier_uniform(gain)) end
--- nn.init.xavier_normal(gain = 1): likewise, normal.
function made.xavier_normal(gain) return base.start_of_shape("nn.init.xavier_normal", kinds.xavier_normal(gain)) end
--- nn.init.kaiming_uniform(a = 0, mode = "fan_in", nonlinearity = "leaky_relu"): uniform, by the number of inputs or outputs.
function made.kaiming_uniform(a, mode, nonlinearity)
  return base.start_of_shape("nn.init.kaiming_uniform", kinds.kaiming_uniform(a, mode, nonlinearity))
end
--- nn.init.kaiming_normal(a = 0, mode = "fan_in", nonlinearity = "leaky_relu"): likewise, normal.
function made.kaiming_normal(a, mode, nonlinearity)
  return base.start_of_shape("nn.init.kaiming_normal", kinds.kaiming_normal(a, mode, nonlinearity))
end
--- nn.init.calculate_gain(nonlinearity, param?): the factor that keeps the size of values behind it.
function made.calculate_gain(nonlinearity, param) return gain_of(nonlinearity, param) end

--- nn.init.zeros_(tensor): the parameter, which begins with zeros.
function made.zeros_(tensor) return begin(tensor, "zeros_", kinds.zeros()) end
--- nn.init.ones_(tensor): likewise, with ones.
function made.ones_(tensor) return begin(tensor, "ones_", kinds.ones()) end
--- nn.init.constant_(tensor, val): likewise.
function made.constant_(tensor, val) return begin(tensor, "constant_", kinds.constant(val)) end
--- nn.init.uniform_(tensor, a = 0, b = 1): likewise.
function made.uniform_(tensor, a, b) return begin(tensor, "uniform_", kinds.uniform(a, b)) end
--- nn.init.normal_(tensor, mean = 0, std = 1): likewise.
function made.normal_(tensor, mean, std) return begin(tensor, "normal_", kinds.normal(mean, std)) end
--- nn.init.xavier_uniform_(tensor, gain = 1): likewise.
function made.xavier_uniform_(tensor, gain) return begin(tensor, "xavier_uniform_", kinds.xavier_uniform(gain)) end
--- nn.init.xavier_normal_(tensor, gain = 1): likewise.
function made.xavier_normal_(tensor, gain) return begin(tensor, "xavier_normal_", kinds.xavier_normal(gain)) end
--- nn.init.kaiming_uniform_(tensor, a = 0, mode = "fan_in", nonlinearity = "leaky_relu"): likewise.
function made.kaiming_uniform_(tensor, a, mode, nonlinearity)
  return begin(tensor, "kaiming_uniform_", kinds.kaiming_uniform(a, mode, nonlinearity))
end
--- nn.init.kaiming_normal_(tensor, a = 0, mode = "fan_in", nonlinearity = "leaky_relu"): likewise.
function made.kaiming_normal_(tensor, a, mode, nonlinearity)
  return begin(tensor, "kaiming_normal_", kinds.kaiming_normal(a, mode, nonlinearity))
end
for name, f in pairs(made) do rawset(init, name, core.unwatched(f)) end
