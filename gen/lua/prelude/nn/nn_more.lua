-- nn_more.lua: modules of torch.nn that are a call of one function: borders, activations, dropout of channels, windows, pools,
-- losses; and nn.Bilinear, nn.EmbeddingBag.
local core, base, plan = ...
local fail = base.fail
local nn, F = plan.nn, base.F
local own_class, plain, flag = base.own_class, base.plain_class, base.checked_flag

local of = {}        -- the functions, whatever a plan does to F
for name, f in pairs(F) do of[name] = f end

local LARGEST = 1 << 40

-- ------------------------------------------------------------------------------------------ borders

local function border(name, n, mode, takes_value)
  local function new(padding, value)
    local list = padding
    if base.kind(list) ~= "table" then
      list = {}
      for i = 1, 2 * n do list[i] = padding end
    end
    if base.length(list, name .. "'s padding") ~= 2 * n then
      fail("%s's padding is a number, or a list of %d, from the last dimension on", name, 2 * n)
    end
    return {}, table.pack(list, mode, value)
  end
  plain(name, "pad", takes_value and new or function(padding) return new(padding, nil) end)
end
--- # Modules for images, and norms
--- nn.ZeroPad1d(padding): `F.pad` with zeros. `nn.ZeroPad2d` and `nn.ZeroPad3d` likewise.
--- nn.ZeroPad2d(padding): see `nn.ZeroPad1d`.
--- nn.ZeroPad3d(padding): see `nn.ZeroPad1d`.
--- nn.ConstantPad1d(padding, value): `F.pad` with a number. `nn.ConstantPad2d` and `nn.ConstantPad3d` likewise.
--- nn.ConstantPad2d(padding, value): see `nn.ConstantPad1d`.
--- nn.ConstantPad3d(padding, value): see `nn.ConstantPad1d`.
--- nn.ReflectionPad1d(padding): `F.pad` with what is reflected. `nn.ReflectionPad2d` likewise.
--- nn.ReflectionPad2d(padding): see `nn.ReflectionPad1d`.
--- nn.ReplicationPad1d(padding): `F.pad` with the outermost elements. `nn.ReplicationPad2d` likewise.
--- nn.ReplicationPad2d(padding): see `nn.ReplicationPad1d`.
--- nn.CircularPad1d(padding): `F.pad` with the other end. `nn.CircularPad2d` likewise.
--- nn.CircularPad2d(padding): see `nn.CircularPad1d`.
for n = 1, 3 do
  border("ZeroPad" .. n .. "d", n, "constant", false)
  border("ConstantPad" .. n .. "d", n, "constant", true)
  if n < 3 then
    border("ReflectionPad" .. n .. "d", n, "reflect", false)
    border("ReplicationPad" .. n .. "d", n, "replicate", false)
    border("CircularPad" .. n .. "d", n, "circular", false)
  end
end

-- -------------------------------------------------------------------------------------- activations

--- # Modules
--- nn.Softmin(dim): `F.softmin`.
plain("Softmin", "softmin", function(dim)
  if dim == nil then fail("Softmin: say over which dimension it goes: nn.Softmin(-1), the last") end
  return {}, table.pack(dim)
end)
--- nn.Softmax2d(): `F.softmax` over channels.
plain("Softmax2d", "softmax", function() return {}, table.pack(-3) end)
--- nn.Hardshrink(lambd = 0.5): `F.hardshrink`.
plain("Hardshrink", "hardshrink", function(lambd) return {}, table.pack(lambd) end)
--- nn.Softshrink(lambd = 0.5): `F.softshrink`.
plain("Softshrink", "softshrink", function(lambd) return {}, table.pack(lambd) end)
--- nn.Threshold(threshold, value): `F.threshold`.
plain("Threshold", "threshold", function(threshold, value, inplace) return {}, table.pack(threshold, value) end)
--- nn.LocalResponseNorm(size, alpha = 0.0001, beta = 0.75, k = 1): `F.local_response_norm`.
plain("LocalResponseNorm", "local_response_norm", function(size, alpha, beta, k) return {}, table.pack(size, alpha, beta, k) end)
--- nn.Dropout1d(p = 0.5): `F.dropout1d`. `nn.Dropout2d` and `nn.Dropout3d` likewise.
--- nn.Dropout2d(p = 0.5): see `nn.Dropout1d`.
--- nn.Dropout3d(p = 0.5): see `nn.Dropout1d`.
for n = 1, 3 do
  plain("Dropout" .. n .. "d", "dropout" .. n .. "d", function(p, inplace) return {}, table.pack(p) end)
end
--- nn.AlphaDropout(p = 0.5): `F.alpha_dropout`.
plain("AlphaDropout", "alpha_dropout", function(p, inplace) return {}, table.pack(p, true) end)
--- nn.FeatureAlphaDropout(p = 0.5): `F.feature_alpha_dropout`.
plain("FeatureAlphaDropout", "feature_alpha_dropout", function(p, inplace) return {}, table.pack(p, true) end)
--- nn.Unflatten(dim, unflattened_size): `x:unflatten(dim, sizes)`.
plain("Unflatten", "unflatten", function(dim, unflattened_size) return {}, table.pack(dim, unflattened_size) end)

-- ------------------------------------------------------------------------------------------- images

--- # Modules for images, and norms
--- nn.ChannelShuffle(groups): `F.channel_shuffle`.
plain("ChannelShuffle", "channel_shuffle", function(groups) return {}, table.pack(groups) end)
--- nn.Unfold(kernel_size, dilation = 1, padding = 0, stride = 1): `F.unfold`.
plain("Unfold", "unfold", function(kernel_size, dilation, padding, stride)
  return {}, table.pack(kernel_size, dilation, padding, stride)
end)
--- nn.Fold(output_size, kernel_size, dilation = 1, padding = 0, stride = 1): `F.fold`.
plain("Fold", "fold", function(output_size, kernel_size, dilation, padding, stride)
  return {}, table.pack(output_size, kernel_size, dilation, padding, stride)
end)
--- nn.MaxPool3d(kernel_size, stride?, padding = 0, dilation = 1, ceil_mode = false): `F.max_pool3d`.
plain("MaxPool3d", "max_pool3d", function(kernel_size, stride, padding, dilation, return_indices, ceil_mode)
  return {}, table.pack(kernel_size, stride, padding, dilation, ceil_mode, return_indices)
end)
--- nn.AvgPool3d(kernel_size, stride?, padding = 0, ceil_mode = false, count_include_pad = true, divisor_override?):
--- `F.avg_pool3d`.
plain("AvgPool3d", "avg_pool3d", function(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
  return {}, table.pack(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
end)
--- nn.AdaptiveAvgPool3d(output_size): `F.adaptive_avg_pool3d`.
plain("AdaptiveAvgPool3d", "adaptive_avg_pool3d", function(output_size) return {}, table.pack(output_size) end)
--- nn.AdaptiveMaxPool1d(output_size): `F.adaptive_max_pool1d`. `nn.AdaptiveMaxPool2d` likewise.
--- nn.AdaptiveMaxPool2d(output_size): see `nn.AdaptiveMaxPool1d`.
--- nn.LPPool1d(norm_type, kernel_size, stride?, ceil_mode = false): `F.lp_pool1d`. `nn.LPPool2d` likewise.
--- nn.LPPool2d(norm_type, kernel_size, stride?, ceil_mode = false): see `nn.LPPool1d`.
for n = 1, 2 do
  plain("AdaptiveMaxPool" .. n .. "d", "adaptive_max_pool" .. n .. "d", function(output_size, return_indices)
    return {}, table.pack(output_size, return_indices)
  end)
  plain("LPPool" .. n .. "d", "lp_pool" .. n .. "d", function(norm_type, kernel_size, stride, ceil_mode)
    return {}, table.pack(norm_type, kernel_size, stride, ceil_mode)
  end)
end
--- nn.UpsamplingNearest2d(size?, scale_factor?): `F.interpolate`.
plain("UpsamplingNearest2d", "interpolate", function(size, scale_factor) return {}, table.pack(size, scale_factor, "nearest") end)
--- nn.UpsamplingBilinear2d(size?, scale_factor?): `F.interpolate`, the corners on each other.
plain("UpsamplingBilinear2d", "interpolate", function(size, scale_factor)
  return {}, table.pack(size, scale_factor, "bilinear", true)
end)

-- ------------------------------------------------------------------------------- products, and rows

--- # Modules
--- nn.Bilinear(in1_features, in2_features, out_features, bias = true, dtype?): `F.bilinear`.
nn.Bilinear = own_class("Bilinear", {"weight", "bias"},
  function(in1_features, in2_features, out_features, bias, device, dtype)
    base.only_float32(dtype, "Bilinear")
    local first = base.integer(in1_features, "Bilinear's in1_features", 1, LARGEST)
    local second = base.integer(in2_features, "Bilinear's in2_features", 1, LARGEST)
    local outputs = base.integer(out_features, "Bilinear's out_features", 1, LARGEST)
    local bound = 1 / math.sqrt(first)
    return {
      weight = core.parameter("Bilinear", {outputs, first, second}, "uniform", -bound, bound),
      bias = flag(bias, "Bilinear's bias") and core.parameter("Bilinear", {outputs}, "uniform", -bound, bound) or nil,
    }
  end,
  function(self, _, input1, input2)
    base.check_input(input1, "Bilinear")
    base.check_input(input2, "Bilinear")
    return of.bilinear(input1, input2, self.weight, self.bias)
  end)

--- nn.EmbeddingBag(num_embeddings, embedding_dim, norm_type = 2, mode = "mean", include_last_offset = false, padding_idx?,
--- dtype?): `F.embedding_bag`.
nn.EmbeddingBag = own_class("EmbeddingBag", {"weight"},
  function(num_embeddings, embedding_dim, max_norm, norm_type, scale_grad_by_freq, mode, sparse, _weight, include_last_offset,
      padding_idx, device, dtype)
    base.only_float32(dtype, "EmbeddingBag")
    if include_last_offset then fail("EmbeddingBag does not take 'include_last_offset': bags are the rows of the input") end
    local rows = base.integer(num_embeddings, "EmbeddingBag's number of rows", 1, LARGEST)
    local size = base.integer(embedding_dim, "EmbeddingBag's size", 1, LARGEST)
    return {weight = core.parameter("EmbeddingBag", {rows, size}, "normal", 0.0, 1.0)},
      {mode = mode, padding_idx = padding_idx}
  end,
  function(self, how, input, offsets, per_sample_weights)
    base.check_input(input, "EmbeddingBag")
    return of.embedding_bag(input, self.weight, offsets,
      {mode = how.mode, padding_idx = how.padding_idx, per_sample_weights = per_sample_weights})
  end)
