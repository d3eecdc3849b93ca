-- losses.lua: softmax and functions made of it, losses, normalization and dropout, as in
-- torch.nn.functional.
local core, base = ...
local append, raw, method = core.append, base.raw, base.method
local misfit, shape_text, dimension = base.misfit, base.shape_text, base.dimension
local reduced, keeps, without, gathered = base.reduced, base.keeps, base.without, base.gathered
local floating, wide, narrowed = base.floating, base.wide, base.narrowed

-- ----------------------------------------------------------------------------- softmax and losses

-- x - max(x) along the dimension: its exponentials do not overflow. The maximum cancels in every
-- result, so that no gradient has to flow through it.
local function shifted(x, d)
  local most = reduced("amax", x, {d}, true, nil, true)
  return raw.sub(x, most), most
end

-- The following compute in float32 and return the input's type; but losses are float32. There is no
-- default dimension: PyTorch's, with its warning, is 0 or 1, by the number of dimensions.
local function softmax_input(x, dim)
  if dim == nil then misfit("say over which dimension it goes: -1 is the last") end
  return wide(x), dimension(core.shape(x), dim)
end

--- # Softmax, losses, norms
--- F.softmax(input, dim, dtype?): exponentials over their sum.
--- x:softmax(input, dim, dtype?): the same, as a method.
method("softmax", function(input, dim, _stacklevel, dtype)
  local given = base.typed(input, dtype)
  local x, d = softmax_input(given, dim)
  local e = raw.exp((shifted(x, d)))
  return narrowed(raw.div(e, reduced("sum", e, {d}, true)), given)
end)

--- F.log_softmax(input, dim, dtype?): its logarithm.
--- x:log_softmax(input, dim, dtype?): the same, as a method.
method("log_softmax", function(input, dim, _stacklevel, dtype)
  local given = base.typed(input, dtype)
  local x, d = softmax_input(given, dim)
  local z = shifted(x, d)
  return narrowed(raw.sub(z, raw.log(reduced("sum", raw.exp(z), {d}, true))), given)
end)
for _, name in ipairs{"softmax", "log_softmax"} do
  base.as_method(name, function(input, dim, dtype) return raw[name](input, dim, nil, dtype) end)
end

--- F.logsumexp(input, dim, keepdim = false): the logarithm of the sum of exponentials.
method("logsumexp", function(input, dim, keepdim)
  if dim == nil then misfit("say over which dimension it goes: -1 is the last") end
  local x, list = wide(input), base.dimensions(core.shape(input), dim)
  local most = reduced("amax", x, list, true, nil, true)
  local e = raw.exp(raw.sub(x, most))
  local y = narrowed(raw.add(raw.log(reduced("sum", e, list, true)), most), input)
  if keeps(keepdim) then return y end
  return raw.squeeze(y, list)
end)

local function reduction_of(reduction)
  local how = reduction == nil and "mean" or reduction
  if how ~= "mean" and how ~= "sum" and how ~= "none" then
    misfit('the reduction is "mean", "sum" or "none", not %s', base.a(how))
  end
  return how
end

-- The class whose targets are ignored: PyTorch's default unless given.
local function ignored_of(ignore_index)
  if ignore_index == nil then return -100 end
  return base.whole(ignore_index, "ignore_index", -2^31 | 0, 2^31 - 1 | 0)
end

local function finished(x, how)
  if how == "none" then return x end
  return how == "mean" and raw.mean(x) or raw.sum(x)
end

base.reduction_of, base.finished = reduction_of, finished

local function without_dimension(shape, d)
  local rest = table.move(shape, 1, #shape, 1, {})
  table.remove(rest, d + 1)
  return rest
end

-- The dimension of the classes: `dim`, if it is given. Else it is dimension 1 where the targets' shape fits
-- that, as in PyTorch; and the last one where only that fits.
local function classes_dimension(shape, there, dim)
  local function fits(d) return base.same_shape(there, without_dimension(shape, d)) end
  if dim ~= nil then
    local d = dimension(shape, dim)
    if fits(d) then return d end
    misfit("targets of shape %s do not fit the shape %s with the classes in dimension %d", shape_text(there),
      shape_text(shape), d)
  end
  local last = #shape - 1
  if last > 1 and fits(1) then
    if fits(last) then
      core.note(string.format("the classes of the shape %s are dimension 1, as in PyTorch; by the targets' "
        .. "shape they could be the last one, too: dim = 1 or dim = -1 says which", shape_text(shape)))
    end
    return 1
  end
  if last >= 0 and fits(last) then return last end
  misfit("targets of shape %s do not fit the shape %s: targets have its dimensions without that of the "
    .. "classes, which is dimension 1 or the last one", shape_text(there), shape_text(shape))
end

-- x with the classes last, and the targets, their numbers.
local function classes_and_targets(x, targets, ignored, dim)
  local d = classes_dimension(core.shape(x), core.shape(base.need_whole(targets, "the targets")), dim)
  local last, order = #core.shape(x) - 1, {}
  for i = 0, last do order[i + 1] = i end
  if d < last then x = raw.permute(x, table.move({table.remove(order, d + 1)}, 1, 1, last + 1, order)) end
  return x, base.indices(targets, "the targets", core.shape(x)[last + 1], ignored)
end

-- The weight of each target's class: [..., 1]; nil if classes have none.
local function weights_of(targets, weight, classes)
  if weight == nil then return nil end
  local shape = core.shape(base.need_floating(base.tensor(weight, "the weight")))
  if #shape ~= 1 or shape[1] ~= classes then
    misfit("a weight of shape %s does not fit %d classes", shape_text(shape), classes)
  end
  return core.append("embedding", {raw.unsqueeze(wide(weight), 1), targets})
end

-- The batches of a step whose labels one mean goes over.
base.batches_of_mean = 1

-- The loss of each target, x [..., 1], reduced: an ignored class has no loss and does not count.
-- Other targets all count; each by its weight.
local function lost(x, targets, how, ignored, weights)
  local counts = weights
  if core.may_be(targets, ignored) then
    local is_counted = raw.ne(raw.unsqueeze(targets, -1), ignored)
    x = raw.where(is_counted, x, 0.0)
    counts = weights and raw.where(is_counted, weights, 0.0) or raw.to(is_counted, "float32")
  end
  if how == "none" then return without(x, #core.shape(x) - 1) end
  if how == "sum" or not counts then return finished(x, how) end
  local count = raw.sum(counts)
  base.counted = base.counted or count
  if base.batches_of_mean > 1 then count = core.step_mean(count, base.batches_of_mean) end
  return raw.div(raw.sum(x), count)
end

-- The element of each target's class: [..., 1].
local function picked(x, targets)
  return gathered(x, #core.shape(x) - 1, raw.unsqueeze(targets, -1))
end

-- The loss of targets that are probabilities of classes, [n, classes].
local function loss_of_shares(logits, target, weight, how, smoothing)
  local shape = core.shape(logits)
  if not base.same_shape(shape, core.shape(target)) or #shape ~= 2 then
    misfit("float targets are probabilities: they and the logits have one shape [n, classes], not %s and %s",
      shape_text(core.shape(target)), shape_text(shape))
  end
  local classes = shape[2]
  target = wide(target)
  if smoothing > 0 then target = raw.add(raw.mul(target, 1 - smoothing), smoothing / classes) end
  if weight ~= nil then target = raw.mul(target, weight) end
  local y = raw.neg(reduced("sum", raw.mul(raw.log_softmax(logits, 1), target), {1}))
  return finished(y, how)
end

-- cross_entropy(logits, targets, {weight =, ignore_index =, reduction =, label_smoothing =, z_loss =,
-- dim =}): logits [n, classes, ...], as PyTorch has them, or [..., classes]. z_loss: so many times the square
-- of the logarithm of the sum of all exponentials is added to the loss of each target that counts. If the classes are sharded over
-- ranks, each has a part of the sums and some of the targets' logits; as these are few, every rank
-- gets all of them at once.
--- F.cross_entropy(input, target, weight?, ignore_index = -100, reduction = "mean", label_smoothing = 0, z_loss = 0,
--- dim?): of logits `[n, classes, ...]`, or with `dim = -1` `[..., classes]`. `z_loss` times the square of the
--- logarithm of the sum of exponentials is added for each target that counts. Where the classes are cut over ranks,
--- each has a part of the sums.
method("cross_entropy", function(input, target, weight, size_average, ignore_index, reduce, reduction,
    label_smoothing, z_loss, dim)
  local how, ignored = reduction_of(reduction), ignored_of(ignore_index)
  local smoothing = base.number_or(label_smoothing, 0.0, "label_smoothing")
  if smoothing < 0 or smoothing > 1 then misfit("label_smoothing must be from 0 to 1, not %g", smoothing) end
  local z_factor = base.number_or(z_loss, 0.0, "z_loss")
  if z_factor < 0 then misfit("z_loss must be 0 or more, not %g", z_factor) end
  local logits = wide(input)
  if base.is_floating(base.tensor(target, "the targets")) then
    if z_factor > 0 then misfit("z_loss is for targets that are classes, not probabilities") end
    return loss_of_shares(logits, target, weight, how, smoothing)
  end
  local targets
  logits, targets = classes_and_targets(logits, target, ignored, dim)
  local shape = core.shape(logits)
  local d, classes = #shape - 1, shape[#shape]
  local weights = weights_of(targets, weight, classes)
  local z, most = shifted(logits, d)
  local all = core.finish(reduced("sum", raw.exp(z), {d}, true), "the loss over all classes")
  local own = core.finish(picked(logits, targets), "the targets' part of the loss")
  local log_of_all = raw.log(all)
  local y = raw.sub(log_of_all, raw.sub(own, most))
  if weights then y = raw.mul(y, weights) end
  if smoothing > 0 then
    local sum = reduced("sum", weight == nil and z or raw.mul(z, wide(weight)), {d}, true)
    sum = core.finish(sum, "the loss over all classes")
    local of_all = raw.mul(log_of_all, weight == nil and classes or raw.sum(wide(weight)))
    y = raw.add(raw.mul(y, 1 - smoothing), raw.mul(raw.sub(of_all, sum), smoothing / classes))
  end
  if z_factor == 0 then return lost(y, targets, how, ignored, weights) end
  local squares = raw.mul(raw.square(raw.add(log_of_all, most)), z_factor)
  if not weights then return lost(raw.add(y, squares), targets, how, ignored) end
  return raw.add(lost(y, targets, how, ignored, weights), lost(squares, targets, how, ignored))
end)

--- F.nll_loss(input, target, weight?, ignore_index = -100, reduction = "mean", dim?): of log probabilities.
method("nll_loss", function(input, target, weight, size_average, ignore_index, reduce, reduction, dim)
  local how, ignored = reduction_of(reduction), ignored_of(ignore_index)
  local x, targets = classes_and_targets(base.need_floating(input), target, ignored, dim)
  local weights = weights_of(targets, weight, core.shape(x)[#core.shape(x)])
  local y = raw.neg(wide(picked(x, targets)))
  if weights then y = raw.mul(y, weights) end
  return lost(y, targets, how, ignored, weights)
end)

local function same_sizes(input, target)
  local a, b = core.shape(input), core.shape(base.tensor(target, "the target"))
  if not base.same_shape(a, b) then
    misfit("shapes %s and %s are not equal", shape_text(a), shape_text(b))
  end
  return wide(input), wide(target)
end

-- The loss by element, multiplied by the weight, reduced.
local function weighted(y, weight, how)
  if weight == nil then return finished(y, how) end
  weight = wide(base.tensor(weight, "the weight"))
  base.check_broadcast(core.shape(y), core.shape(weight), "a weight")
  y = raw.mul(y, weight)
  if how ~= "mean" then return finished(y, how) end
  return raw.div(raw.sum(y), raw.sum(raw.expand(weight, core.shape(y))))
end

--- F.mse_loss(input, target, reduction = "mean", weight?): the mean square of the difference.
method("mse_loss", function(input, target, size_average, reduce, reduction, weight)
  local how = reduction_of(reduction)
  local x, y = same_sizes(input, target)
  return weighted(raw.square(raw.sub(x, y)), weight, how)
end)

--- F.l1_loss(input, target, reduction = "mean", weight?): the mean absolute difference.
method("l1_loss", function(input, target, size_average, reduce, reduction, weight)
  local how = reduction_of(reduction)
  local x, y = same_sizes(input, target)
  return weighted(raw.abs(raw.sub(x, y)), weight, how)
end)

-- huber_loss(x, y, reduction, delta): half the square up to delta, and a line beyond.
local function huber(input, target, delta)
  local x, y = same_sizes(input, target)
  local apart = raw.abs(raw.sub(x, y))
  local near = raw.mul(raw.square(apart), 0.5)
  return raw.where(raw.lt(apart, delta), near, raw.mul(raw.sub(apart, 0.5 * delta), delta))
end
local function above_zero(v, what)
  if not (base.number_or(v, 1, what) > 0) then misfit("%s must be above 0", what) end
  return v == nil and 1.0 or v
end
--- F.huber_loss(input, target, reduction = "mean", delta = 1, weight?): half the square up to `delta`, a line beyond.
method("huber_loss", function(input, target, reduction, delta, weight)
  local how = reduction_of(reduction)
  return weighted(huber(input, target, above_zero(delta, "delta")), weight, how)
end)
--- F.smooth_l1_loss(input, target, reduction = "mean", beta = 1): the same over `beta`.
method("smooth_l1_loss", function(input, target, size_average, reduce, reduction, beta)
  local how = reduction_of(reduction)
  beta = above_zero(beta, "beta")
  return finished(raw.div(huber(input, target, beta), beta), how)
end)

-- For logits and targets from 0 to 1: -y log(sigmoid(x)) - (1 - y) log(1 - sigmoid(x)).
--- F.binary_cross_entropy_with_logits(input, target, weight?, reduction = "mean", pos_weight?): of logits, against
--- numbers from 0 to 1.
method("binary_cross_entropy_with_logits", function(input, target, weight, size_average, reduce, reduction,
    pos_weight)
  local how = reduction_of(reduction)
  local x, y = same_sizes(input, target)
  local function softplus(v) return append("softplus", {v}) end
  local of_one = pos_weight == nil and y or raw.mul(y, wide(base.tensor(pos_weight, "pos_weight")))
  local z = raw.add(raw.mul(raw.sub(1, y), softplus(x)), raw.mul(of_one, softplus(raw.neg(x))))
  if weight ~= nil then z = raw.mul(z, wide(base.tensor(weight, "the weight"))) end
  return finished(z, how)
end)

-- ---------------------------------------------------------------------------------- normalisation

local function epsilon(eps, otherwise)
  if eps == nil then return otherwise end
  if type(eps) ~= "number" or not (eps >= 0 and eps < math.huge) then
    misfit("eps must be a number of 0 or more, not %s", math.type(eps) and tostring(eps)
      or base.a(eps))
  end
  return eps
end

-- The last dimensions of x, which must have these sizes.
local function last_dimensions(x, sizes)
  local shape, list = core.shape(x), {}
  sizes = base.integers("size", sizes)
  local first = #shape - #sizes
  for i, size in ipairs(sizes) do
    if first < 0 or shape[first + i] ~= size then
      misfit("the sizes %s are not the last ones of the shape %s", shape_text(sizes),
        shape_text(shape))
    end
    list[i] = first + i - 1
  end
  if #list == 0 then misfit("it takes the sizes of the last dimensions") end
  return list, base.elements(sizes), sizes
end

local function check_affine(v, what, sizes)
  if v == nil then return end
  local shape = core.shape(base.tensor(v, what))
  if not base.same_shape(shape, sizes) then
    misfit("%s of shape %s does not fit the sizes %s", what, shape_text(shape), shape_text(sizes))
  end
end

--- F.layer_norm(input, normalized_shape, weight?, bias?, eps = 1e-5): over the last dimensions, of these sizes.
method("layer_norm", function(input, normalized_shape, weight, bias, eps)
  local x, given = wide(input), normalized_shape
  local dims, n, sizes = last_dimensions(x, given)
  check_affine(weight, "the weight", sizes)
  check_affine(bias, "the bias", sizes)
  local centred = raw.sub(x, reduced("sum", x, dims, true, 1 / n))
  local variance = reduced("sum", raw.square(centred), dims, true, 1 / n)
  local y = raw.mul(centred, raw.rsqrt(raw.add(variance, epsilon(eps, 1e-5))))
  if weight ~= nil then y = raw.mul(y, weight) end
  if bias ~= nil then y = raw.add(y, bias) end
  return narrowed(y, input)
end)

--- F.rms_norm(input, normalized_shape?, weight?, eps?): without the mean; `F.rms_norm(x, weight, eps)` takes the
--- sizes from the weight. The default of `eps` is float32's.
method("rms_norm", function(input, normalized_shape, weight, eps)
  local x, given = wide(input), normalized_shape
  if base.is_tensor(given) then
    if eps ~= nil then misfit("after a weight only eps may follow") end
    given, weight, eps = core.shape(given), given, weight
  end
  local dims, n, sizes = last_dimensions(x, given)
  check_affine(weight, "the weight", sizes)
  local mean = reduced("sum", raw.square(x), dims, true, 1 / n)
  local y = raw.mul(x, raw.rsqrt(raw.add(mean, epsilon(eps, 2^-23))))
  return narrowed(weight == nil and y or raw.mul(y, weight), input)
end)

-- ---------------------------------------------------------------------------------------- dropout

local dropouts = 0           -- so far: each has random numbers of its own

-- Their number, with n more that a loop repeats.
function base.count_dropouts(n)
  dropouts = dropouts + n
  return dropouts
end

--- F.dropout(input, p = 0.5, training = true): zeros at random places, in training only.
method("dropout", function(input, p, training, inplace)
  local x = input
  p = p == nil and 0.5 or p
  if type(p) ~= "number" or not (p >= 0 and p <= 1) then
    misfit("p must be a number from 0 to 1, not %s", math.type(p) and tostring(p) or base.a(p))
  end
  x = floating(x)
  if training == nil then training = true end
  if type(training) ~= "boolean" then
    misfit("whether it trains must be true or false, not %s", base.a(training))
  end
  if p == 0 or not training or not base.training then return x end
  if p == 1 then return raw.full(core.shape(x), 0.0) end
  core.unlike()
  dropouts = dropouts + 1
  return append("dropout", {x}, {scalar = p, stream = dropouts - 1})
end)

