-- losses.lua: softmax and what is made of it, losses, normalisation and dropout, as in
-- torch.nn.functional.
local core, base = ...
local append, raw, method = core.append, base.raw, base.method
local misfit, shape_text, dimension = base.misfit, base.shape_text, base.dimension
local reduced, keeps, without, gathered = base.reduced, base.keeps, base.without, base.gathered
local floating, wide, narrowed = base.floating, base.wide, base.narrowed

-- ----------------------------------------------------------------------------- softmax and losses

-- x - max(x) along the dimension: its exponents do not overflow. The maximum falls out of every
-- result, so that no gradient has to flow through it.
local function shifted(x, d)
  local most = reduced("amax", x, {d}, true, nil, true)
  return raw.sub(x, most), most
end

-- What follows computes in float32, and gives the type that it was given; but losses are float32.
-- There is no default: the one that PyTorch warns of is dimension 0 or 1, by how many there are.
local function softmax_input(x, dim)
  if dim == nil then misfit("say over which dimension it goes: -1 is the last") end
  return wide(x), dimension(core.shape(x), dim)
end

local function softmax(x, dim)
  local input, d = softmax_input(x, dim)
  local e = raw.exp((shifted(input, d)))
  return narrowed(raw.div(e, reduced("sum", e, {d}, true)), x)
end
method("softmax", softmax)

method("log_softmax", function(x, dim)
  local input, d = softmax_input(x, dim)
  local z = shifted(input, d)
  return narrowed(raw.sub(z, raw.log(reduced("sum", raw.exp(z), {d}, true))), x)
end)

method("logsumexp", function(x, dim, keep)
  local input, d = softmax_input(x, dim)
  local z, most = shifted(input, d)
  local y = narrowed(raw.add(raw.log(reduced("sum", raw.exp(z), {d}, true)), most), x)
  return keeps(keep) and y or without(y, d)
end)

local function reduction_of(options)
  local how = options.reduction == nil and "mean" or options.reduction
  if how ~= "mean" and how ~= "sum" and how ~= "none" then
    misfit('the reduction is "mean", "sum" or "none", not %s', base.a(how))
  end
  return how
end

-- The class whose targets are ignored: PyTorch's default unless it is told.
local function ignored_of(options)
  if options.ignore_index == nil then return -100 end
  return base.whole(options.ignore_index, "ignore_index", -2^31 | 0, 2^31 - 1 | 0)
end

local function finished(x, how)
  if how == "none" then return x end
  return how == "mean" and raw.mean(x) or raw.sum(x)
end

-- x [..., classes] and the classes' numbers [...]: of shape [..., 1].
local function check_targets(x, targets, options)
  local shape = core.shape(x)
  local there = core.shape(base.need_whole(targets, "the targets"))
  local leading = table.move(shape, 1, #shape - 1, 1, {})
  if #shape == 0 or not base.same_shape(there, leading) then
    misfit("targets of shape %s do not fit the shape %s: they are the number of a class for each "
      .. "of its leading dimensions; the last one is the classes", shape_text(there),
      shape_text(shape))
  end
  return base.indices(targets, "the targets", shape[#shape], ignored_of(options))
end

-- What is lost of each target, x [..., 1], brought together: where it is the class to be ignored,
-- nothing, and it doesn't count. Targets that are never that class all count.
local function lost(x, targets, options)
  local how, ignored = reduction_of(options), ignored_of(options)
  local counts
  if core.may_be(targets, ignored) then
    counts = raw.ne(raw.unsqueeze(targets, -1), ignored)
    x = raw.where(counts, x, 0.0)
  end
  if how == "none" then return without(x, #core.shape(x) - 1) end
  if how == "sum" or not counts then return finished(x, how) end
  return raw.div(raw.sum(x), raw.sum(raw.to(counts, "float32")))
end

-- The element of each target's class: [..., 1].
local function picked(x, targets)
  return gathered(x, #core.shape(x) - 1, raw.unsqueeze(targets, -1))
end

-- cross_entropy(logits, targets[, {reduction =, ignore_index =}]): logits [..., classes]. Where the
-- classes are cut over ranks, each has a part of the sums and some of the targets; as these are few,
-- every rank is told all of them at once.
method("cross_entropy", function(logits, targets, options)
  options = base.options_of(options, {"reduction", "ignore_index"})
  logits = wide(logits)
  targets = check_targets(logits, targets, options)
  local d = #core.shape(logits) - 1
  local z, most = shifted(logits, d)
  local all = core.finish(reduced("sum", raw.exp(z), {d}, true), "the loss over all classes")
  local target = core.finish(picked(logits, targets), "the targets' part of the loss")
  return lost(raw.sub(raw.log(all), raw.sub(target, most)), targets, options)
end)

-- nll_loss(log_probabilities, targets[, options])
method("nll_loss", function(x, targets, options)
  options = base.options_of(options, {"reduction", "ignore_index"})
  targets = check_targets(base.need_floating(x), targets, options)
  return lost(raw.neg(wide(picked(x, targets))), targets, options)
end)

method("mse_loss", function(x, target, options)
  local how = reduction_of(base.options_of(options, {"reduction"}))
  local a, b = core.shape(x), core.shape(base.tensor(target, "the target"))
  if not base.same_shape(a, b) then
    misfit("shapes %s and %s are not equal", shape_text(a), shape_text(b))
  end
  return finished(raw.square(raw.sub(wide(x), wide(target))), how)
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

-- layer_norm(x, sizes, weight, bias, eps): sizes: of the last dimensions.
method("layer_norm", function(input, given, weight, bias, eps)
  local x = wide(input)
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

-- rms_norm(x, sizes, weight, eps), or rms_norm(x, weight, eps).
method("rms_norm", function(input, given, weight, eps)
  local x = wide(input)
  if base.is_tensor(given) then
    if eps ~= nil then misfit("behind a weight stands eps alone") end
    given, weight, eps = core.shape(given), given, weight
  end
  local dims, n, sizes = last_dimensions(x, given)
  check_affine(weight, "the weight", sizes)
  local mean = reduced("sum", raw.square(x), dims, true, 1 / n)
  local y = raw.mul(x, raw.rsqrt(raw.add(mean, epsilon(eps, 2^-23))))
  return narrowed(weight == nil and y or raw.mul(y, weight), input)
end)

-- ---------------------------------------------------------------------------------------- dropout

local dropouts = 0           -- so far: each draws numbers of its own

-- dropout(x, p): only in training.
method("dropout", function(x, p, training)
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

