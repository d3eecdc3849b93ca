-- nn_losses.lua: losses and other functions of two or three tensors as modules, as in torch.nn.
local core, base, plan = ...
local nn, F = plan.nn, base.F

local of = {}        -- the functions, whatever a plan does to F
for name, f in pairs(F) do of[name] = f end

-- A weight of the module's, which is never trained.
local function buffer(tensor, what)
  if tensor ~= nil then core.make_buffer(base.expect(tensor, "tensor", what .. ", an nn.Parameter,")) end
  return tensor
end

-- A class whose forward is a function of so many tensors. new(...): tensors of the module, and the function's arguments by
-- name.
local function of_tensors(class_name, name, count, new)
  nn[class_name] = base.own_class(class_name, {"weight", "pos_weight"}, new, function(self, arguments, ...)
    local inputs, n = {...}, select("#", ...)
    for i = 1, math.max(n, count) do base.check_input(inputs[i], class_name) end
    local given = {weight = self.weight, pos_weight = self.pos_weight}
    for key, value in pairs(arguments) do given[key] = value end
    inputs[math.max(n, count) + 1] = given
    return of[name](table.unpack(inputs))
  end)
end
-- Those that have no argument but the reduction.
local function plain(class_name, name)
  of_tensors(class_name, name, 2, function(size_average, reduce, reduction) return {}, {reduction = reduction} end)
end

--- # Losses as modules
--- nn.CrossEntropyLoss(weight?, ignore_index = -100, reduction = "mean", label_smoothing = 0): `F.cross_entropy`; `weight` is a
--- parameter, which is not trained.
of_tensors("CrossEntropyLoss", "cross_entropy", 2,
  function(weight, size_average, ignore_index, reduce, reduction, label_smoothing)
    return {weight = buffer(weight, "CrossEntropyLoss's weight")},
      {ignore_index = ignore_index, reduction = reduction, label_smoothing = label_smoothing}
  end)
--- nn.NLLLoss(weight?, ignore_index = -100, reduction = "mean"): `F.nll_loss`.
of_tensors("NLLLoss", "nll_loss", 2, function(weight, size_average, ignore_index, reduce, reduction)
  return {weight = buffer(weight, "NLLLoss's weight")}, {ignore_index = ignore_index, reduction = reduction}
end)
--- nn.MSELoss(reduction = "mean"): `F.mse_loss`.
plain("MSELoss", "mse_loss")
--- nn.L1Loss(reduction = "mean"): `F.l1_loss`.
plain("L1Loss", "l1_loss")
--- nn.SoftMarginLoss(reduction = "mean"): `F.soft_margin_loss`.
plain("SoftMarginLoss", "soft_margin_loss")
--- nn.SmoothL1Loss(reduction = "mean", beta = 1): `F.smooth_l1_loss`.
of_tensors("SmoothL1Loss", "smooth_l1_loss", 2, function(size_average, reduce, reduction, beta)
  return {}, {reduction = reduction, beta = beta}
end)
--- nn.HuberLoss(reduction = "mean", delta = 1): `F.huber_loss`.
of_tensors("HuberLoss", "huber_loss", 2, function(reduction, delta) return {}, {reduction = reduction, delta = delta} end)
--- nn.BCELoss(weight?, reduction = "mean"): `F.binary_cross_entropy`.
of_tensors("BCELoss", "binary_cross_entropy", 2, function(weight, size_average, reduce, reduction)
  return {weight = buffer(weight, "BCELoss's weight")}, {reduction = reduction}
end)
--- nn.BCEWithLogitsLoss(weight?, reduction = "mean", pos_weight?): `F.binary_cross_entropy_with_logits`.
of_tensors("BCEWithLogitsLoss", "binary_cross_entropy_with_logits", 2,
  function(weight, size_average, reduce, reduction, pos_weight)
    return {weight = buffer(weight, "BCEWithLogitsLoss's weight"),
      pos_weight = buffer(pos_weight, "BCEWithLogitsLoss's pos_weight")}, {reduction = reduction}
  end)
--- nn.KLDivLoss(reduction = "mean", log_target = false): `F.kl_div`.
of_tensors("KLDivLoss", "kl_div", 2, function(size_average, reduce, reduction, log_target)
  return {}, {reduction = reduction, log_target = log_target}
end)
--- nn.PoissonNLLLoss(log_input = true, full = false, eps = 1e-8, reduction = "mean"): `F.poisson_nll_loss`.
of_tensors("PoissonNLLLoss", "poisson_nll_loss", 2, function(log_input, full, size_average, eps, reduce, reduction)
  return {}, {log_input = log_input, full = full, eps = eps, reduction = reduction}
end)
--- nn.GaussianNLLLoss(full = false, eps = 1e-6, reduction = "mean"): `F.gaussian_nll_loss`.
of_tensors("GaussianNLLLoss", "gaussian_nll_loss", 3, function(full, eps, reduction)
  return {}, {full = full, eps = eps, reduction = reduction}
end)
--- nn.MarginRankingLoss(margin = 0, reduction = "mean"): `F.margin_ranking_loss`.
of_tensors("MarginRankingLoss", "margin_ranking_loss", 3, function(margin, size_average, reduce, reduction)
  return {}, {margin = margin, reduction = reduction}
end)
--- nn.HingeEmbeddingLoss(margin = 1, reduction = "mean"): `F.hinge_embedding_loss`.
of_tensors("HingeEmbeddingLoss", "hinge_embedding_loss", 2, function(margin, size_average, reduce, reduction)
  return {}, {margin = margin, reduction = reduction}
end)
--- nn.MultiLabelSoftMarginLoss(weight?, reduction = "mean"): `F.multilabel_soft_margin_loss`.
of_tensors("MultiLabelSoftMarginLoss", "multilabel_soft_margin_loss", 2, function(weight, size_average, reduce, reduction)
  return {weight = buffer(weight, "MultiLabelSoftMarginLoss's weight")}, {reduction = reduction}
end)
--- nn.CosineEmbeddingLoss(margin = 0, reduction = "mean"): `F.cosine_embedding_loss`.
of_tensors("CosineEmbeddingLoss", "cosine_embedding_loss", 3, function(margin, size_average, reduce, reduction)
  return {}, {margin = margin, reduction = reduction}
end)
--- nn.TripletMarginLoss(margin = 1, p = 2, eps = 1e-6, swap = false, reduction = "mean"): `F.triplet_margin_loss`.
of_tensors("TripletMarginLoss", "triplet_margin_loss", 3, function(margin, p, eps, swap, size_average, reduce, reduction)
  return {}, {margin = margin, p = p, eps = eps, swap = swap, reduction = reduction}
end)
--- nn.MultiMarginLoss(p = 1, margin = 1, weight?, reduction = "mean"): `F.multi_margin_loss`.
of_tensors("MultiMarginLoss", "multi_margin_loss", 2, function(p, margin, weight, size_average, reduce, reduction)
  return {weight = buffer(weight, "MultiMarginLoss's weight")}, {p = p, margin = margin, reduction = reduction}
end)
--- nn.MultiLabelMarginLoss(reduction = "mean"): `F.multilabel_margin_loss`.
plain("MultiLabelMarginLoss", "multilabel_margin_loss")
--- nn.CosineSimilarity(dim = 1, eps = 1e-8): `F.cosine_similarity`.
of_tensors("CosineSimilarity", "cosine_similarity", 2, function(dim, eps) return {}, {dim = dim, eps = eps} end)
--- nn.PairwiseDistance(p = 2, eps = 1e-6, keepdim = false): `F.pairwise_distance`.
of_tensors("PairwiseDistance", "pairwise_distance", 2, function(p, eps, keepdim)
  return {}, {p = p, eps = eps, keepdim = keepdim}
end)
