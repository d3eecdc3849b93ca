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

-- By name: a function of its arguments, which gives one of the shape: the kind and its numbers.
local kinds = {}

local function fixed(kind, ...)
  local numbers = {...}
  return function() return kind, table.unpack(numbers) end
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

-- A deviation, which is above 0.
local function deviation_of(v, otherwise, who)
  local deviation = default(v, otherwise, who .. "'s std")
  if deviation <= 0 then fail("%s's std is above 0, not %s", who, deviation) end
  return deviation
end

function kinds.trunc_normal(mean, std, a, b)
  local who = "nn.init.trunc_normal"
  mean, std = default(mean, 0.0, who .. "'s mean"), deviation_of(std, 1.0, who)
  a, b = default(a, -2.0, who .. "'s a"), default(b, 2.0, who .. "'s b")
  if a >= b then fail("%s: its a is below its b, not %s and %s", who, a, b) end
  if (a - mean) / std > 30 or (mean - b) / std > 30 then
    fail("%s: all values between %s and %s are more than 30 deviations away from the mean: nn.init.uniform will do", who, a, b)
  end
  return fixed("trunc_normal", mean, std, a, b)
end

-- Each rank makes the whole: so many numbers, and products of a vector of them with all others, in reasonable time.
local MOST_NUMBERS, MOST_PRODUCTS = 1 << 27, 1 << 37
local function matrix_of(shape, who)
  local rows, columns = shape[1], 1
  for i = 2, #shape do columns = columns * shape[i] end
  if rows > MOST_NUMBERS or columns > MOST_NUMBERS or rows * columns > MOST_NUMBERS then
    fail("%s: a tensor of shape %s is too large, because each rank makes the whole: at most 2^27 numbers", who,
      base.shape_text(shape))
  end
  return rows, columns
end

function kinds.orthogonal(gain)
  gain = default(gain, 1.0, "nn.init.orthogonal's gain")
  return function(shape)
    local who = "nn.init.orthogonal"
    if #shape < 2 then fail("%s is for tensors of two dimensions and more, not %s", who, base.shape_text(shape)) end
    local rows, columns = matrix_of(shape, who)
    if rows * columns * math.min(rows, columns) > MOST_PRODUCTS then
      fail("%s: a tensor of shape %s takes too long, because each rank makes the whole: as a matrix its size times its "
        .. "smaller side is at most 2^37; nn.init.xavier_normal will do", who, base.shape_text(shape))
    end
    return "orthogonal", gain, 0.0
  end
end

function kinds.sparse(sparsity, std)
  local who = "nn.init.sparse"
  sparsity, std = base.finite(sparsity, who .. "'s sparsity"), deviation_of(std, 0.01, who)
  if sparsity < 0 or sparsity > 1 then fail("%s's sparsity is from 0 to 1, not %s", who, sparsity) end
  return function(shape)
    if #shape ~= 2 then fail("%s is for tensors of two dimensions, not %s", who, base.shape_text(shape)) end
    matrix_of(shape, who)
    return "sparse", sparsity, std
  end
end

function kinds.eye()
  return function(shape)
    if #shape ~= 2 then fail("nn.init.eye is for tensors of two dimensions, not %s", base.shape_text(shape)) end
    return "dirac", 1.0, 0.0
  end
end

function kinds.dirac(groups)
  groups = base.integer(groups == nil and 1 or groups, "nn.init.dirac's groups", 1, 1 << 40)
  return function(shape)
    if #shape < 3 or #shape > 5 then
      fail("nn.init.dirac is for weights of convolutions, of 3 to 5 dimensions, not %s", base.shape_text(shape))
    end
    if shape[1] % groups ~= 0 then
      fail("nn.init.dirac: %d groups do not divide dimension 0 of %s", groups, base.shape_text(shape))
    end
    return "dirac", groups + 0.0, 0.0
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
--- nn.init.trunc_normal(mean = 0, std = 1, a = -2, b = 2): normal, none below a or above b.
function made.trunc_normal(mean, std, a, b)
  return base.start_of_shape("nn.init.trunc_normal", kinds.trunc_normal(mean, std, a, b))
end
--- nn.init.orthogonal(gain = 1): a matrix of dimension 0 and the others together, whose rows or columns are orthogonal.
function made.orthogonal(gain) return base.start_of_shape("nn.init.orthogonal", kinds.orthogonal(gain)) end
--- nn.init.sparse(sparsity, std = 0.01): zeros, of that share in each column of a matrix, and normal values.
function made.sparse(sparsity, std) return base.start_of_shape("nn.init.sparse", kinds.sparse(sparsity, std)) end
--- nn.init.eye(): the identity, of a matrix.
function made.eye() return base.start_of_shape("nn.init.eye", kinds.eye()) end
--- nn.init.dirac(groups = 1): the identity, of a convolution's weight.
function made.dirac(groups) return base.start_of_shape("nn.init.dirac", kinds.dirac(groups)) end
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
--- nn.init.trunc_normal_(tensor, mean = 0, std = 1, a = -2, b = 2): likewise.
function made.trunc_normal_(tensor, mean, std, a, b)
  return begin(tensor, "trunc_normal_", kinds.trunc_normal(mean, std, a, b))
end
--- nn.init.orthogonal_(tensor, gain = 1): likewise.
function made.orthogonal_(tensor, gain) return begin(tensor, "orthogonal_", kinds.orthogonal(gain)) end
--- nn.init.sparse_(tensor, sparsity, std = 0.01): likewise.
function made.sparse_(tensor, sparsity, std) return begin(tensor, "sparse_", kinds.sparse(sparsity, std)) end
--- nn.init.eye_(tensor): likewise.
function made.eye_(tensor) return begin(tensor, "eye_", kinds.eye()) end
--- nn.init.dirac_(tensor, groups = 1): likewise.
function made.dirac_(tensor, groups) return begin(tensor, "dirac_", kinds.dirac(groups)) end
for name, f in pairs(made) do rawset(init, name, core.unwatched(f)) end
