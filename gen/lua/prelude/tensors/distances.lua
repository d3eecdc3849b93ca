-- distances.lua: lengths and angles of vectors, and losses made of them or of logarithms, with the arguments, defaults
-- and gradients of torch.nn.functional.
local core, base = ...
local raw, method = base.raw, base.method
local misfit, shape_text, wide = base.misfit, base.shape_text, base.wide
local reduction_of, finished, number = base.reduction_of, base.finished, base.number_or

local function flag(v, otherwise, what)
  if v == nil then return otherwise end
  if type(v) ~= "boolean" then misfit("%s must be true or false, not %s", what, base.a(v)) end
  return v
end

-- ------------------------------------------------------------------------------------------- vectors

--- # Softmax, losses, norms
--- F.normalize(input, p = 2, dim = 1, eps = 1e-12): over its p-norm along a dimension, of at least `eps`.
method("normalize", function(input, p, dim, eps, out)
  local x = base.need_floating(input)
  local length = raw.norm(x, p, dim == nil and 1 or dim, true)
  return raw.div(x, raw.clamp(length, number(eps, 1e-12, "eps"), nil))
end)

local function cosine(x, y, dim, eps)
  base.check_broadcast(core.shape(x), core.shape(y), "a tensor")
  local function whole(t) return raw.clamp(raw.norm(t, 2, dim, true), eps, nil) end
  return raw.sum(raw.mul(raw.div(x, whole(x)), raw.div(y, whole(y))), dim)
end
--- F.cosine_similarity(x1, x2, dim = 1, eps = 1e-8): the cosine of the angle between vectors along a dimension.
method("cosine_similarity", function(x1, x2, dim, eps)
  return cosine(base.floating(x1), base.floating(base.tensor(x2, "x2")), dim == nil and 1 or dim, number(eps, 1e-8, "eps"))
end)

local function distance(x, y, p, eps, keepdim)
  return raw.norm(raw.add(raw.sub(x, y), eps), p, -1, keepdim)
end
--- F.pairwise_distance(x1, x2, p = 2, eps = 1e-6, keepdim = false): the p-norm of `x1 - x2 + eps` along the last
--- dimension.
method("pairwise_distance", function(x1, x2, p, eps, keepdim)
  return distance(x1, base.tensor(x2, "x2"), p == nil and 2 or p, number(eps, 1e-6, "eps"), keepdim)
end)

-- -------------------------------------------------------------------------------------------- losses

local function two(input, target)
  local a, b = core.shape(input), core.shape(base.tensor(target, "the target"))
  if not base.same_shape(a, b) then misfit("shapes %s and %s are not equal", shape_text(a), shape_text(b)) end
  return wide(input), wide(target)
end

-- y log(y), which is 0 at 0.
local function times_log(y)
  local above = raw.gt(y, 0)
  return raw.where(above, raw.mul(y, raw.log(raw.where(above, y, 1.0))), 0.0)
end

--- F.kl_div(input, target, reduction = "mean", log_target = false): `target * (log(target) - input)` of log
--- probabilities; with `log_target` the target is a logarithm, too. `"batchmean"` divides the sum by the samples.
method("kl_div", function(input, target, size_average, reduce, reduction, log_target)
  local how = reduction
  if how == "batchmean" then how = "sum" end
  how = reduction_of(how)
  local x, y = two(input, target)
  local loss
  if flag(log_target, false, "log_target") then
    loss = raw.mul(raw.exp(y), raw.sub(y, x))
  else
    loss = raw.sub(times_log(y), raw.mul(y, x))
  end
  loss = finished(loss, how)
  return reduction == "batchmean" and raw.div(loss, core.shape(x)[1] or 1) or loss
end)

--- F.binary_cross_entropy(input, target, weight?, reduction = "mean"): of probabilities, whose logarithms are at least
--- -100.
method("binary_cross_entropy", function(input, target, weight, size_average, reduce, reduction)
  local how = reduction_of(reduction)
  local x, y = two(input, target)
  local fixed = raw.detach(x)
  local function log(v) return raw.clamp(raw.log(v), -100, nil) end
  local loss = raw.neg(raw.add(raw.mul(y, log(fixed)), raw.mul(raw.sub(1, y), log(raw.sub(1, fixed)))))
  -- PyTorch's gradient, whose divisor is at least 1e-12; fixed - x is 0.
  local slope = raw.div(raw.sub(fixed, raw.detach(y)), raw.clamp(raw.mul(raw.sub(1, fixed), fixed), 1e-12, nil))
  loss = raw.add(loss, raw.mul(slope, raw.sub(x, fixed)))
  if weight ~= nil then loss = raw.mul(loss, wide(base.tensor(weight, "the weight"))) end
  return finished(loss, how)
end)

--- F.poisson_nll_loss(input, target, log_input = true, full = false, eps = 1e-8, reduction = "mean"): `exp(x) - target * x`,
--- or without `log_input` `x - target * log(x + eps)`. With `full` Stirling's terms are added.
method("poisson_nll_loss", function(input, target, log_input, full, size_average, eps, reduce, reduction)
  local how = reduction_of(reduction)
  local x, y = two(input, target)
  local loss
  if flag(log_input, true, "log_input") then
    loss = raw.sub(raw.exp(x), raw.mul(y, x))
  else
    loss = raw.sub(x, raw.mul(y, raw.log(raw.add(x, number(eps, 1e-8, "eps")))))
  end
  if flag(full, false, "full") then
    local above = raw.gt(y, 1)
    local z = raw.where(above, y, 1.0)
    local stirling = raw.add(raw.sub(raw.mul(z, raw.log(z)), z), raw.mul(0.5, raw.log(raw.mul(2 * math.pi, z))))
    loss = raw.add(loss, raw.where(above, stirling, 0.0))
  end
  return finished(loss, how)
end)

--- F.gaussian_nll_loss(input, target, var, full = false, eps = 1e-6, reduction = "mean"): half of `log(var) + (input -
--- target) ^ 2 / var`, of variances of at least `eps`.
method("gaussian_nll_loss", function(input, target, var, full, eps, reduction)
  local how = reduction_of(reduction)
  local x, y = two(input, target)
  local v, shape = wide(base.tensor(var, "var")), core.shape(x)
  local sizes = core.shape(v)
  if #sizes == #shape - 1 and base.same_shape(sizes, table.move(shape, 1, #shape - 1, 1, {})) then v = raw.unsqueeze(v, -1) end
  base.check_broadcast(shape, core.shape(v), "var")
  local least = number(eps, 1e-6, "eps")
  v = raw.add(v, raw.detach(raw.sub(raw.clamp(v, least, nil), v))) -- the gradient passes, as in PyTorch
  local loss = raw.mul(0.5, raw.add(raw.log(v), raw.div(raw.square(raw.sub(x, y)), v)))
  if flag(full, false, "full") then loss = raw.add(loss, 0.5 * math.log(2 * math.pi)) end
  return finished(loss, how)
end)

-- What x has above 0.
local function above_zero(x) return raw.clamp(x, 0.0, nil) end

--- F.margin_ranking_loss(input1, input2, target, margin = 0, reduction = "mean"): what `margin - target * (input1 - input2)`
--- is above 0.
method("margin_ranking_loss", function(input1, input2, target, margin, size_average, reduce, reduction)
  local how = reduction_of(reduction)
  local x, y = wide(input1), wide(base.tensor(input2, "input2"))
  local apart = raw.mul(wide(base.tensor(target, "the target")), raw.sub(x, y))
  return finished(above_zero(raw.sub(number(margin, 0, "margin"), apart)), how)
end)
--- F.hinge_embedding_loss(input, target, margin = 1, reduction = "mean"): the input where the target is 1, what `margin -
--- input` is above 0 where it is -1.
method("hinge_embedding_loss", function(input, target, margin, size_average, reduce, reduction)
  local how = reduction_of(reduction)
  local x, y = two(input, target)
  local near = raw.where(raw.ne(y, -1), x, 0.0)
  local far = raw.where(raw.ne(y, 1), above_zero(raw.sub(number(margin, 1, "margin"), x)), 0.0)
  return finished(raw.add(near, far), how)
end)
--- F.soft_margin_loss(input, target, reduction = "mean"): `log(1 + exp(-target * input))`.
method("soft_margin_loss", function(input, target, size_average, reduce, reduction)
  local how = reduction_of(reduction)
  local x, y = two(input, target)
  return finished(core.append("softplus", {raw.neg(raw.mul(y, x))}), how)
end)
--- F.multilabel_soft_margin_loss(input, target, weight?, reduction = "mean"): the mean over classes of
--- `F.binary_cross_entropy_with_logits`.
method("multilabel_soft_margin_loss", function(input, target, weight, size_average, reduce, reduction)
  local how = reduction_of(reduction)
  local loss = raw.binary_cross_entropy_with_logits(input, target, nil, nil, nil, "none")
  if weight ~= nil then loss = raw.mul(loss, wide(base.tensor(weight, "the weight"))) end
  return finished(raw.mean(loss, -1), how)
end)
--- F.cosine_embedding_loss(input1, input2, target, margin = 0, reduction = "mean"): 1 less the cosine where the target is 1,
--- what the cosine is above `margin` where it is -1.
method("cosine_embedding_loss", function(input1, input2, target, margin, size_average, reduce, reduction)
  local how = reduction_of(reduction)
  local x, y, label = wide(input1), wide(base.tensor(input2, "input2")), base.tensor(target, "the target")
  local EPS = 1e-12 -- added to squares of lengths, as in PyTorch
  local function squares(t) return raw.add(raw.sum(raw.square(t), -1), EPS) end
  local cos = raw.div(raw.sum(raw.mul(x, y), -1), raw.sqrt(raw.mul(squares(x), squares(y))))
  local near = raw.where(raw.eq(label, 1), raw.sub(1, cos), 0.0)
  local far = raw.where(raw.eq(label, -1), above_zero(raw.sub(cos, number(margin, 0, "margin"))), 0.0)
  return finished(raw.add(near, far), how)
end)
--- F.triplet_margin_loss(anchor, positive, negative, margin = 1, p = 2, eps = 1e-6, swap = false, reduction = "mean"): what
--- the distance to `positive`, less that to `negative`, and `margin` are above 0.
method("triplet_margin_loss", function(anchor, positive, negative, margin, p, eps, swap, size_average, reduce, reduction)
  local how = reduction_of(reduction)
  p, eps = p == nil and 2 or p, number(eps, 1e-6, "eps")
  local a, near, far = wide(anchor), wide(base.tensor(positive, "positive")), wide(base.tensor(negative, "negative"))
  local to_near, to_far = distance(a, near, p, eps), distance(a, far, p, eps)
  if flag(swap, false, "swap") then to_far = raw.minimum(to_far, distance(near, far, p, eps)) end
  return finished(above_zero(raw.add(raw.sub(to_near, to_far), number(margin, 1, "margin"))), how)
end)
