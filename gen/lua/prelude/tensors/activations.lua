-- activations.lua: functions of one element, and a few of two, made of other operators, with the
-- names, arguments, defaults and gradients of torch.nn.functional. Each is one kernel (fuse).
local core, base = ...
local raw, method = base.raw, base.method
local misfit, dimension, floating = base.misfit, base.dimension, base.floating

local number = base.number_or

-- ---------------------------------------------------------------------------------------- bounds

-- x:clamp(min, max), x:clamp{min =, max =}: numbers or tensors. The gradient passes at the bounds.
local function clamp(input, min, max)
  local x, low, high = input, min, max
  if low == nil and high == nil then misfit("say min, max or both") end
  if low ~= nil then x = raw.where(raw.lt(x, low), low, x) end
  if high ~= nil then x = raw.where(raw.gt(x, high), high, x) end
  return x
end
--- # Activations
--- F.clamp(input, min?, max?): at least `min` and at most `max`, numbers or tensors. The gradient passes at the
--- bounds.
method("clamp", clamp)
--- F.clip(input, min?, max?): as `F.clamp`.
method("clip", clamp)

-- Between two numbers; the gradient does not pass at the bounds.
local function between(x, low, high)
  return raw.where(raw.le(x, low), low, raw.where(raw.ge(x, high), high, x))
end

--- F.hardtanh(input, min_val = -1, max_val = 1): between two numbers; the gradient does not pass at the bounds.
method("hardtanh", function(input, min_val, max_val, inplace)
  return between(floating(input), number(min_val, -1, "min_val"), number(max_val, 1, "max_val"))
end)
--- F.relu6(input): from 0 to 6.
method("relu6", function(input, inplace) return between(floating(input), 0, 6) end)
local function hardsigmoid(x) return between(raw.add(raw.mul(x, 1 / 6), 0.5), 0, 1) end
--- F.hardsigmoid(input): `x / 6 + 1 / 2`, from 0 to 1.
method("hardsigmoid", function(input, inplace) return hardsigmoid(floating(input)) end)
--- F.hardswish(input): `x * hardsigmoid(x)`.
method("hardswish", function(input, inplace)
  local x = floating(input)
  return raw.mul(x, hardsigmoid(x))
end)

-- ------------------------------------------------------------------------------ kinds of rectifier

-- f(x) below 0, x above. The argument of f is never above 0: it cannot overflow.
local function below_zero(x, f)
  local above = raw.gt(x, 0)
  return raw.where(above, x, f(raw.where(above, 0.0, x)))
end

--- F.leaky_relu(input, negative_slope = 0.01): `negative_slope * x` below 0.
method("leaky_relu", function(input, negative_slope, inplace)
  local slope = number(negative_slope, 0.01, "negative_slope")
  return below_zero(floating(input), function(y) return raw.mul(y, slope) end)
end)
--- F.elu(input, alpha = 1): `alpha * (exp(x) - 1)` below 0.
method("elu", function(input, alpha, inplace)
  alpha = number(alpha, 1, "alpha")
  return below_zero(floating(input), function(y) return raw.mul(raw.expm1(y), alpha) end)
end)
--- F.celu(input, alpha = 1): `alpha * (exp(x / alpha) - 1)` below 0.
method("celu", function(input, alpha, inplace)
  alpha = number(alpha, 1, "alpha")
  if alpha == 0 then misfit("alpha must not be 0") end
  return below_zero(floating(input), function(y) return raw.mul(raw.expm1(raw.div(y, alpha)), alpha) end)
end)
local SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
--- F.selu(input): as in torch.
method("selu", function(input, inplace)
  local y = below_zero(floating(input), function(y) return raw.mul(raw.expm1(y), SELU_ALPHA) end)
  return raw.mul(y, SELU_SCALE)
end)

--- F.prelu(input, weight): slopes below 0: one, or one for each index of dimension 1.
method("prelu", function(input, weight)
  local x = input
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

--- F.softplus(input, beta = 1, threshold = 20): `log(1 + exp(beta * x)) / beta`; x where `beta * x` is above the
--- threshold.
method("softplus", function(input, beta, threshold)
  local x = floating(input)
  beta, threshold = number(beta, 1, "beta"), number(threshold, 20, "threshold")
  if beta == 0 then misfit("beta must not be 0") end
  local scaled = beta == 1 and x or raw.mul(x, beta)
  local y = log_of_one_and_exp(scaled)
  if beta ~= 1 then y = raw.div(y, beta) end
  if threshold >= 20 then return y end
  return raw.where(raw.gt(scaled, threshold), x, y)
end)
--- F.logsigmoid(input): the logarithm of the sigmoid.
method("logsigmoid", function(input)
  return raw.neg(log_of_one_and_exp(raw.neg(floating(input))))
end)
--- F.mish(input): `x * tanh(softplus(x))`.
method("mish", function(input, inplace)
  local x = floating(input)
  return raw.mul(x, raw.tanh(log_of_one_and_exp(x)))
end)
--- F.softsign(input): `x / (1 + abs(x))`.
method("softsign", function(input)
  local x = floating(input)
  return raw.div(x, raw.add(raw.abs(x), 1))
end)
--- F.tanhshrink(input): `x - tanh(x)`.
method("tanhshrink", function(input)
  local x = floating(input)
  return raw.sub(x, raw.tanh(x))
end)

--- F.logaddexp(input, other): `log(exp(a) + exp(b))`.
method("logaddexp", function(input, other)
  local x, y = base.operands(input, other, "float32")
  local apart = raw.where(raw.eq(x, y), 0.0, raw.sub(x, y))
  return raw.add(raw.maximum(x, y), log_of_one_and_exp(raw.neg(raw.abs(apart))))
end)

--- F.glu(input, dim = -1): the first half along a dimension times the sigmoid of the second.
method("glu", function(input, dim)
  local x = input
  local shape = core.shape(base.need_floating(x))
  local d = dimension(shape, dim == nil and -1 or dim)
  local size = shape[d + 1]
  if size % 2 == 1 then misfit("dimension %d has %d elements, which are not two equal halves", d, size) end
  return raw.mul(base.narrow(x, d, 0, size // 2), raw.sigmoid(base.narrow(x, d, size // 2, size // 2)))
end)
