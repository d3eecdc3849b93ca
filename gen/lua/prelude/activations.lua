-- activations.lua: functions of one element, and a few of two, that are made of other operators, with the
-- names, arguments, defaults and gradients of torch.nn.functional. One kernel computes each (fuse).
local core, base = ...
local raw, method = base.raw, base.method
local misfit, dimension, floating = base.misfit, base.dimension, base.floating

local function number(value, default, what)
  if value == nil then return default end
  if type(value) ~= "number" or value ~= value then
    misfit("%s must be a number, not %s", what, base.a(value))
  end
  return value
end

-- Arguments by position, or by name in a table: `names` in PyTorch's order.
local function arguments(given, names)
  local first = given[1]
  if base.kind(first) ~= "table" then return table.unpack(given, 1, #names) end
  local options, list = base.options_of(first, names), {}
  for i, name in ipairs(names) do list[i] = options[name] end
  return table.unpack(list, 1, #names)
end

-- A method that takes x and arguments, each a number with a default: list = {{name, default}, ...}.
local function scalar_method(name, list, compute)
  local names = {}
  for i, argument in ipairs(list) do names[i] = argument[1] end
  method(name, function(x, a, b)
    local given = {arguments({a, b}, names)}
    for i, argument in ipairs(list) do given[i] = number(given[i], argument[2], argument[1]) end
    return compute(floating(x), given[1], given[2])
  end)
end

-- ---------------------------------------------------------------------------------------- bounds

-- x:clamp(min, max), x:clamp{min =, max =}: numbers or tensors. The gradient passes at the bounds.
local function clamp(x, low, high)
  low, high = arguments({low, high}, {"min", "max"})
  if low == nil and high == nil then misfit("say min, max or both") end
  if low ~= nil then x = raw.where(raw.lt(x, low), low, x) end
  if high ~= nil then x = raw.where(raw.gt(x, high), high, x) end
  return x
end
method("clamp", clamp)
method("clip", clamp)

-- Between two numbers, where the gradient does not pass at the bounds.
local function between(x, low, high)
  return raw.where(raw.le(x, low), low, raw.where(raw.ge(x, high), high, x))
end

scalar_method("hardtanh", {{"min_val", -1}, {"max_val", 1}}, between)
scalar_method("relu6", {}, function(x) return between(x, 0, 6) end)
local function hardsigmoid(x) return between(raw.add(raw.mul(x, 1 / 6), 0.5), 0, 1) end
scalar_method("hardsigmoid", {}, hardsigmoid)
scalar_method("hardswish", {}, function(x) return raw.mul(x, hardsigmoid(x)) end)

-- ------------------------------------------------------------------------------ kinds of rectifier

-- f(x) below 0, x above. What f is given is never above 0: it cannot overflow.
local function below_zero(x, f)
  local above = raw.gt(x, 0)
  return raw.where(above, x, f(raw.where(above, 0.0, x)))
end

scalar_method("leaky_relu", {{"negative_slope", 0.01}}, function(x, slope)
  return below_zero(x, function(y) return raw.mul(y, slope) end)
end)
scalar_method("elu", {{"alpha", 1}}, function(x, alpha)
  return below_zero(x, function(y) return raw.mul(raw.expm1(y), alpha) end)
end)
scalar_method("celu", {{"alpha", 1}}, function(x, alpha)
  if alpha == 0 then misfit("alpha must not be 0") end
  return below_zero(x, function(y) return raw.mul(raw.expm1(raw.div(y, alpha)), alpha) end)
end)
local SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
scalar_method("selu", {}, function(x)
  return raw.mul(below_zero(x, function(y) return raw.mul(raw.expm1(y), SELU_ALPHA) end), SELU_SCALE)
end)

-- prelu(x, weight): one slope, or one for each index of dimension 1.
method("prelu", function(x, weight)
  local shape, slopes = core.shape(base.need_floating(x)), core.shape(base.tensor(weight, "the weight"))
  local n = #slopes == 0 and 1 or slopes[1]
  if #slopes > 1 or n ~= 1 and n ~= shape[2] then
    misfit("the weight has one number, or one for each index of dimension 1; its shape is %s, that of the "
      .. "tensor %s", base.shape_text(slopes), base.shape_text(shape))
  end
  local across = {}
  for d = 1, math.max(#shape, 1) do across[d] = d == 2 and n or 1 end
  if #shape < 2 then across = n == 1 and {} or across end
  return below_zero(x, function(y) return raw.mul(y, base.view(weight, across)) end)
end)

-- ----------------------------------------------------------------------------- smooth activations

local function log_of_one_and_exp(x) return core.append("softplus", {x}) end

-- softplus(x, beta, threshold): log(1 + exp(beta x)) / beta; above the threshold x.
local function softplus(x, beta, threshold)
  if beta == 0 then misfit("beta must not be 0") end
  local scaled = beta == 1 and x or raw.mul(x, beta)
  local y = log_of_one_and_exp(scaled)
  if beta ~= 1 then y = raw.div(y, beta) end
  if threshold >= 20 then return y end
  return raw.where(raw.gt(scaled, threshold), x, y)
end
scalar_method("softplus", {{"beta", 1}, {"threshold", 20}}, softplus)
scalar_method("logsigmoid", {}, function(x) return raw.neg(log_of_one_and_exp(raw.neg(x))) end)
scalar_method("mish", {}, function(x) return raw.mul(x, raw.tanh(log_of_one_and_exp(x))) end)
scalar_method("softsign", {}, function(x) return raw.div(x, raw.add(raw.abs(x), 1)) end)
scalar_method("tanhshrink", {}, function(x) return raw.sub(x, raw.tanh(x)) end)

-- logaddexp(a, b) = log(exp(a) + exp(b)).
method("logaddexp", function(a, b)
  local x, y = base.operands(a, b, "float32")
  local apart = raw.where(raw.eq(x, y), 0.0, raw.sub(x, y))
  return raw.add(raw.maximum(x, y), log_of_one_and_exp(raw.neg(raw.abs(apart))))
end)

-- glu(x, dim): the first half times the sigmoid of the second.
method("glu", function(x, dim)
  local shape = core.shape(base.need_floating(x))
  local d = dimension(shape, dim == nil and -1 or dim)
  local size = shape[d + 1]
  if size % 2 == 1 then misfit("dimension %d has %d elements, which are not two equal halves", d, size) end
  return raw.mul(base.narrow(x, d, 0, size // 2), raw.sigmoid(base.narrow(x, d, size // 2, size // 2)))
end)
