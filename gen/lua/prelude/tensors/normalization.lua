-- normalization.lua: normalization of groups of channels and of batches, as in torch.nn.functional;
-- products along a dimension, and counts.
local core, base = ...
local append, raw, method = core.append, base.raw, base.method
local misfit, shape_text, dimension = base.misfit, base.shape_text, base.dimension
local view, reduced, wide, narrowed = base.view, base.reduced, base.wide, base.narrowed

local function epsilon(eps)
  eps = base.number_or(eps, 1e-5, "eps")
  if not (eps >= 0 and eps < math.huge) then misfit("eps must be a number of 0 or more, not %s", eps) end
  return eps
end

-- One number for each of the channels, which are dimension 1.
local function across(v, what, shape)
  if v == nil then return nil end
  local size = core.shape(base.tensor(v, what))
  if #size ~= 1 or size[1] ~= shape[2] then
    misfit("%s of shape %s does not fit the %d channels of the shape %s", what, shape_text(size), shape[2],
      shape_text(shape))
  end
  local sizes = {shape[2]}
  for _ = 3, #shape do sizes[#sizes + 1] = 1 end
  return view(v, sizes)
end

local function affine(y, weight, bias, shape)
  if weight ~= nil then y = raw.mul(y, across(weight, "the weight", shape)) end
  if bias ~= nil then y = raw.add(y, across(bias, "the bias", shape)) end
  return y
end

-- x minus its mean over dimensions, and the mean of the squares of that.
local function centred(x, dims, n)
  local mean = reduced("sum", x, dims, true, 1 / n)
  local y = raw.sub(x, mean)
  return y, reduced("sum", raw.square(y), dims, true, 1 / n), mean
end

local function need_channels(x)
  local shape = core.shape(base.need_floating(x))
  if #shape < 2 then misfit("it takes [n, channels, ...], not the shape %s", shape_text(shape)) end
  return shape
end

local function group_norm(input, groups, weight, bias, eps)
  local shape = need_channels(input)
  if shape[2] % groups ~= 0 then
    misfit("%d channels cannot be divided into %d groups; the shape is %s", shape[2], groups, shape_text(shape))
  end
  local split, dims, n = {shape[1], groups, shape[2] // groups}, {}, 1
  for d = 3, #shape do split[#split + 1] = shape[d] end
  if #split > 8 then misfit("a tensor of %d dimensions is too many: at most 7", #shape) end
  for d = 3, #split do dims[#dims + 1], n = d - 1, n * split[d] end
  local y, variance = centred(view(wide(input), split), dims, n)
  y = view(raw.mul(y, raw.rsqrt(raw.add(variance, epsilon(eps)))), shape)
  return narrowed(affine(y, weight, bias, shape), input)
end

--- # Normalization
--- F.group_norm(input, num_groups, weight?, bias?, eps = 1e-5): over groups of channels.
method("group_norm", function(input, num_groups, weight, bias, eps)
  return group_norm(input, base.whole(num_groups, "num_groups", 1), weight, bias, eps)
end)

--- F.instance_norm(input, running_mean?, running_var?, weight?, bias?, use_input_stats = true, momentum = 0.1, eps =
--- 1e-5): over each channel of each image.
method("instance_norm", function(input, running_mean, running_var, weight, bias, use_input_stats, momentum,
    eps)
  if running_mean ~= nil or running_var ~= nil then
    misfit("running_mean and running_var are not taken: each image has its own mean")
  end
  if use_input_stats == false then misfit("use_input_stats = false needs running_mean, which is not taken") end
  base.number_or(momentum, 0.1, "momentum")
  return group_norm(input, need_channels(input)[2], weight, bias, eps)
end)

-- All dimensions except that of the channels, and their number of elements.
local function beside_channels(shape)
  local dims, n = {}, 1
  for d = 0, #shape - 1 do
    if d ~= 1 then dims[#dims + 1], n = d, n * shape[d + 1] end
  end
  return dims, n
end

-- v [1, channels, 1, ...] of the whole batch; in a validation, what its buffer holds, if there is one: after the
-- step that is (1 - momentum) buffer + momentum times v.
local function followed(v, buffer, momentum, times, what)
  if buffer == nil then return v end
  local shape = core.shape(v)
  across(buffer, what, shape)
  local value = core.finish(view(v, {shape[2]}), what)
  append("running", {times == 1 and value or raw.mul(value, times), buffer}, {scalar = momentum})
  return view(append("in_training", {value, buffer}), shape)
end

-- x normalized by its own mean and variance over the batch. A sum of many numbers that are far from zero is rounded,
-- so the rest of the mean is computed from the rest of x.
local function by_batch(x, shape, running_mean, running_var, momentum, eps)
  local dims, n = beside_channels(shape)
  if n < 2 then misfit("one element for each channel has no variance; the shape is %s", shape_text(shape)) end
  local about = raw.detach(reduced("sum", x, dims, true, 1 / n))
  local y = raw.sub(x, about)
  local rest, squares = reduced("sum", y, dims, true, 1 / n), reduced("sum", raw.square(y), dims, true, 1 / n)
  local mean = followed(raw.add(about, rest), running_mean, momentum, 1, "running_mean")
  local variance = followed(raw.sub(squares, raw.square(rest)), running_var, momentum, n / (n - 1), "running_var")
  return raw.mul(raw.sub(x, mean), raw.rsqrt(raw.add(variance, eps)))
end

-- batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps): x [n, channels,
-- ...]. Means and variances are those of the whole batch, however it is sharded. In training
-- running_mean and running_var are parameters that the step updates.
--- F.batch_norm(input, running_mean, running_var, weight?, bias?, training = false, momentum = 0.1, eps = 1e-5):
--- means and variances are those of the whole batch, however it is cut. In training `running_mean` and `running_var`
--- are parameters that the step updates.
method("batch_norm", function(input, running_mean, running_var, weight, bias, training, momentum, eps)
  local shape = need_channels(input)
  if training ~= nil and type(training) ~= "boolean" then
    misfit("training must be true or false, not %s", base.a(training))
  end
  momentum, eps = base.number_or(momentum, 0.1, "momentum"), epsilon(eps)
  local x, y = wide(input), nil
  if training then
    y = by_batch(x, shape, running_mean, running_var, momentum, eps)
  else
    if running_mean == nil or running_var == nil then
      misfit("without training it takes running_mean and running_var")
    end
    local mean, variance = across(running_mean, "running_mean", shape), across(running_var, "running_var", shape)
    y = raw.mul(raw.sub(x, mean), raw.rsqrt(raw.add(variance, eps)))
  end
  return narrowed(affine(y, weight, bias, shape), input)
end)

-- -------------------------------------------------------------------------------- along a dimension

-- cumprod(x, dim): in steps of 1, 2, 4, ...: after each an element is the product of twice as many.
--- F.cumprod(input, dim, dtype?): products of all elements up to each one.
method("cumprod", function(input, dim, dtype)
  local given = base.need_floating(base.typed(input, dtype))
  local x, shape = wide(given), core.shape(given)
  local d = dimension(shape, dim)
  local n = shape[d + 1]
  local sizes = {n}
  for _ = d + 2, #shape do sizes[#sizes + 1] = 1 end
  local place, step = view(base.index_row(n), sizes), 1
  while step < n do
    local borders = {[d] = {step, 0}}
    local before = raw.pad(base.narrow(x, d, 0, n - step), borders)
    x = raw.mul(x, raw.where(raw.ge(place, step), before, 1.0))
    step = step * 2
  end
  return narrowed(x, given)
end)

--- F.bincount(input, weights?, minlength = 0): how often each number from 0 to `minlength - 1` is among the elements.
method("bincount", function(input, weights, minlength)
  if minlength == nil or minlength == 0 then
    misfit("say minlength: the largest number is not a size that a plan knows; numbers are below it")
  end
  local n = base.whole(minlength, "minlength", 1, 2^31 - 1 | 0)
  local ids = base.indices(input, "the numbers", n)
  if #core.shape(ids) ~= 1 then
    misfit("the numbers must have one dimension, not the shape %s", shape_text(core.shape(ids)))
  end
  local each = weights
  if weights == nil then
    each = raw.full(core.shape(ids), 1.0)
  elseif not base.same_shape(core.shape(base.tensor(weights, "weights")), core.shape(ids)) then
    misfit("weights of shape %s must have the shape %s", shape_text(core.shape(weights)),
      shape_text(core.shape(ids)))
  end
  local counts = append("index_add", {wide(each), ids}, {dims = {0}, shapes = {{n}}})
  return weights == nil and raw.to(counts, "int32") or counts
end)
