-- nn_layers.lua: modules for images and for normalization, as in torch.nn.
local core, base, plan = ...
local fail = base.fail
local nn, F = plan.nn, base.F
local own_class, plain, flag = base.own_class, base.plain_class, base.checked_flag

local of = {}        -- the functions, whatever a plan does to F
for name, f in pairs(F) do of[name] = f end

local LARGEST = 1 << 40

-- A number for n dimensions, or a list of one for each.
local function sizes_of(v, n, who)
  if base.kind(v) ~= "table" then
    local one = v
    v = {}
    for i = 1, n do v[i] = one end
  end
  if base.length(v, who) ~= n then
    fail(n == 3 and "%s is a number, or {z, y, x}" or n == 2 and "%s is a number, or {y, x}" or "%s is a number", who)
  end
  local list = {}
  for i = 1, n do list[i] = base.integer(rawget(v, i), who, 0, 1 << 20) end
  return list
end

local PADDING_MODES = {zeros = "constant", reflect = "reflect", replicate = "replicate", circular = "circular"}

-- The parameters of a convolution over n dimensions: its weight [from, into // groups, kernel ...], and a
-- bias for each output unless it is false. Returns these, and the number of groups.
local function convolution(who, n, inputs, outputs, kernel_size, groups, bias, transposed)
  inputs = base.integer(inputs, who .. "'s number of input channels", 1, LARGEST)
  outputs = base.integer(outputs, who .. "'s number of output channels", 1, LARGEST)
  local kernel, taps = sizes_of(kernel_size, n, who .. "'s kernel"), 1
  groups = base.integer(groups == nil and 1 or groups, who .. "'s groups", 1, LARGEST)
  if inputs % groups ~= 0 or outputs % groups ~= 0 then
    fail("%s: %d channels in and %d out cannot be divided into %d groups", who, inputs, outputs, groups)
  end
  local from, into = outputs, inputs
  if transposed then from, into = inputs, outputs end
  local shape = {from, into // groups}
  for i, k in ipairs(kernel) do
    if k < 1 then fail("%s's kernel must be at least 1", who) end
    shape[i + 2], taps = k, taps * k
  end
  local bound = 1 / math.sqrt(into // groups * taps)
  local self = {weight = core.parameter(who, shape, "uniform", -bound, bound)}
  if flag(bias, who .. "'s bias") then
    self.bias = core.parameter(who, {outputs}, "uniform", -bound, bound)
  end
  return self, groups
end

-- nn.Conv1d, nn.Conv2d, nn.Conv3d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
for n = 1, 3 do
  --- # Modules for images, and norms
  --- nn.Conv1d(in_channels, out_channels, kernel_size, stride = 1, padding = 0, dilation = 1, groups = 1, bias =
  --- true, padding_mode = "zeros", dtype?): `F.conv1d`.
  --- nn.Conv2d(in_channels, out_channels, kernel_size, stride = 1, padding = 0, dilation = 1, groups = 1, bias =
  --- true, padding_mode = "zeros", dtype?): `F.conv2d`.
  --- nn.Conv3d(in_channels, out_channels, kernel_size, stride = 1, padding = 0, dilation = 1, groups = 1, bias =
  --- true, padding_mode = "zeros", dtype?): `F.conv3d`.
  --- nn.MaxPool1d(kernel_size, stride?, padding = 0, dilation = 1, ceil_mode = false): `F.max_pool1d`.
  --- nn.MaxPool2d(kernel_size, stride?, padding = 0, dilation = 1, ceil_mode = false): `F.max_pool2d`.
  local who = "Conv" .. n .. "d"
  local convolve = of["conv" .. n .. "d"]
  nn[who] = own_class(who, {"weight", "bias"},
    function(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode,
        device, dtype)
      base.only_float32(dtype, who)
      local self
      self, groups = convolution(who, n, in_channels, out_channels, kernel_size, groups, bias, false)
      local border, mode = nil, PADDING_MODES[padding_mode == nil and "zeros" or padding_mode]
      if not mode then fail('%s\'s padding_mode is "zeros", "reflect", "replicate" or "circular", not %s', who, base.a(padding_mode)) end
      if mode ~= "constant" then
        if type(padding) == "string" then fail("%s: with padding_mode '%s' its padding is numbers", who, padding_mode) end
        border = {}
        for i, p in ipairs(sizes_of(padding == nil and 0 or padding, n, who .. "'s padding")) do
          border[2 * (n - i) + 1], border[2 * (n - i) + 2] = p, p
        end
        padding = 0
      end
      return self, {stride = stride, padding = padding, dilation = dilation, groups = groups, border = border, mode = mode}
    end,
    function(self, how, x)
      base.check_input(x, who)
      if how.border then x = of.pad(x, how.border, how.mode) end
      return convolve(x, self.weight, self.bias, how.stride, how.padding, how.dilation, how.groups)
    end)

  -- nn.MaxPool1d, nn.MaxPool2d(kernel_size, stride, padding)
  if n < 3 then
    plain("MaxPool" .. n .. "d", "max_pool" .. n .. "d",
      function(kernel_size, stride, padding, dilation, return_indices, ceil_mode)
        return {}, table.pack(kernel_size, stride, padding, dilation, ceil_mode)
      end)
  end
end

-- nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding,
-- output_padding, groups, bias, dilation)
for n = 1, 3 do
  --- nn.ConvTranspose1d(in_channels, out_channels, kernel_size, stride = 1, padding = 0, output_padding = 0, groups =
  --- 1, bias = true, dilation = 1, padding_mode = "zeros", dtype?): `F.conv_transpose1d`.
  --- nn.ConvTranspose2d(in_channels, out_channels, kernel_size, stride = 1, padding = 0, output_padding = 0, groups =
  --- 1, bias = true, dilation = 1, padding_mode = "zeros", dtype?): `F.conv_transpose2d`.
  --- nn.ConvTranspose3d(in_channels, out_channels, kernel_size, stride = 1, padding = 0, output_padding = 0, groups =
  --- 1, bias = true, dilation = 1, padding_mode = "zeros", dtype?): `F.conv_transpose3d`.
  local who = "ConvTranspose" .. n .. "d"
  local convolve = of["conv_transpose" .. n .. "d"]
  nn[who] = own_class(who, {"weight", "bias"},
    function(in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation,
        padding_mode, device, dtype)
      base.only_float32(dtype, who)
      if padding_mode ~= nil and padding_mode ~= "zeros" then fail('%s\'s padding_mode is "zeros" only, as in PyTorch', who) end
      local self
      self, groups = convolution(who, n, in_channels, out_channels, kernel_size, groups, bias, true)
      return self, table.pack(stride, padding, output_padding, groups, dilation)
    end,
    function(self, how, x)
      base.check_input(x, who)
      return convolve(x, self.weight, self.bias, table.unpack(how, 1, how.n))
    end)
end

--- nn.AvgPool1d(kernel_size, stride?, padding = 0, ceil_mode = false, count_include_pad = true): `F.avg_pool1d`.
plain("AvgPool1d", "avg_pool1d", function(kernel_size, stride, padding, ceil_mode, count_include_pad)
  return {}, table.pack(kernel_size, stride, padding, ceil_mode, count_include_pad)
end)
--- nn.AvgPool2d(kernel_size, stride?, padding = 0, ceil_mode = false, count_include_pad = true, divisor_override?):
--- `F.avg_pool2d`.
plain("AvgPool2d", "avg_pool2d",
  function(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return {}, table.pack(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
  end)
--- nn.AdaptiveAvgPool1d(output_size): `F.adaptive_avg_pool1d`.
plain("AdaptiveAvgPool1d", "adaptive_avg_pool1d", function(output_size) return {}, table.pack(output_size) end)
--- nn.AdaptiveAvgPool2d(output_size): `F.adaptive_avg_pool2d`.
plain("AdaptiveAvgPool2d", "adaptive_avg_pool2d", function(output_size) return {}, table.pack(output_size) end)
--- nn.Upsample(size?, scale_factor?, mode = "nearest", align_corners?, recompute_scale_factor?): `F.interpolate`.
plain("Upsample", "interpolate", function(size, scale_factor, mode, align_corners, recompute_scale_factor)
  return {}, table.pack(size, scale_factor, mode, align_corners, recompute_scale_factor)
end)

--- nn.PixelShuffle(upscale_factor): `F.pixel_shuffle`.
plain("PixelShuffle", "pixel_shuffle", function(upscale_factor) return {}, table.pack(upscale_factor) end)
--- nn.PixelUnshuffle(downscale_factor): `F.pixel_unshuffle`.
plain("PixelUnshuffle", "pixel_unshuffle", function(downscale_factor) return {}, table.pack(downscale_factor) end)

-- ---------------------------------------------------------------------------------- normalization

--- nn.GroupNorm(num_groups, num_channels, eps = 1e-5, affine = true, dtype?, bias = true): `F.group_norm`.
nn.GroupNorm = own_class("GroupNorm", {"weight", "bias"},
  function(num_groups, num_channels, eps, affine, device, dtype, bias)
    base.only_float32(dtype, "GroupNorm")
    local groups = base.integer(num_groups, "GroupNorm's number of groups", 1, LARGEST)
    local channels = base.integer(num_channels, "GroupNorm's number of channels", 1, LARGEST)
    if channels % groups ~= 0 then
      fail("GroupNorm: %d channels cannot be divided into %d groups", channels, groups)
    end
    local self = {}
    if flag(affine, "GroupNorm's affine") then
      self.weight = base.filled_parameter("GroupNorm", {channels}, 1.0)
      if flag(bias, "GroupNorm's bias") then self.bias = base.filled_parameter("GroupNorm", {channels}, 0.0) end
    end
    return self, {groups = groups, eps = base.epsilon_of(eps, "GroupNorm", 1e-5)}
  end,
  function(self, how, x)
    base.check_input(x, "GroupNorm")
    return of.group_norm(x, how.groups, self.weight, self.bias, how.eps)
  end)

-- At most n dimensions of the images after [n, channels]; for 1d none or one.
local function check_dimensions(x, who, n)
  local dims = #core.shape(x)
  if dims ~= n + 2 and not (n == 1 and dims == 2) then
    fail("%s takes [n, channels, %s], not the shape %s", who, n == 1 and "x" or n == 2 and "y, x" or "z, y, x",
      base.shape_text(core.shape(x)))
  end
end

-- nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d(num_features, eps, momentum, affine, track_running_stats): train
-- uses the statistics of the whole batch and updates running_mean and running_var; infer uses
-- these.
for n = 1, 3 do
  --- nn.BatchNorm1d(num_features, eps = 1e-5, momentum = 0.1, affine = true, track_running_stats = true, dtype?, bias
  --- = true): train takes the statistics of the whole batch and updates running_mean and running_var; infer takes
  --- these.
  --- nn.BatchNorm2d(num_features, eps = 1e-5, momentum = 0.1, affine = true, track_running_stats = true, dtype?, bias
  --- = true): likewise.
  --- nn.BatchNorm3d(num_features, eps = 1e-5, momentum = 0.1, affine = true, track_running_stats = true, dtype?, bias
  --- = true): likewise.
  --- nn.InstanceNorm1d(num_features, eps = 1e-5, momentum = 0.1, affine = false, track_running_stats = false, dtype?,
  --- bias = true): `F.instance_norm`.
  --- nn.InstanceNorm2d(num_features, eps = 1e-5, momentum = 0.1, affine = false, track_running_stats = false, dtype?,
  --- bias = true): likewise.
  --- nn.InstanceNorm3d(num_features, eps = 1e-5, momentum = 0.1, affine = false, track_running_stats = false, dtype?,
  --- bias = true): likewise.
  local who = "BatchNorm" .. n .. "d"
  nn[who] = own_class(who, {"weight", "bias", "running_mean", "running_var"},
    function(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)
      base.only_float32(dtype, who)
      local channels = base.integer(num_features, who .. "'s number of features", 1, LARGEST)
      local self = {}
      if flag(affine, who .. "'s affine") then
        self.weight = base.filled_parameter(who, {channels}, 1.0)
        if flag(bias, who .. "'s bias") then self.bias = base.filled_parameter(who, {channels}, 0.0) end
      end
      if flag(track_running_stats, who .. "'s track_running_stats") then
        self.running_mean = base.filled_parameter(who, {channels}, 0.0)
        self.running_var = base.filled_parameter(who, {channels}, 1.0)
      end
      return self, {eps = base.epsilon_of(eps, who, 1e-5),
        momentum = base.number(momentum == nil and 0.1 or momentum, who .. "'s momentum", 0, 2)}
    end,
    function(self, how, x)
      base.check_input(x, who)
      check_dimensions(x, who, n)
      return of.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias,
        base.training or self.running_mean == nil, how.momentum, how.eps)
    end)

  local instance = "InstanceNorm" .. n .. "d"
  nn[instance] = own_class(instance, {"weight", "bias"},
    function(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)
      base.only_float32(dtype, instance)
      local channels = base.integer(num_features, instance .. "'s number of features", 1, LARGEST)
      if track_running_stats ~= nil and flag(track_running_stats, instance .. "'s track_running_stats") then
        fail("%s does not take 'track_running_stats': each image has its own mean", instance)
      end
      base.number(momentum == nil and 0.1 or momentum, instance .. "'s momentum", 0, 2)
      local self = {}
      if affine ~= nil and flag(affine, instance .. "'s affine") then
        self.weight = base.filled_parameter(instance, {channels}, 1.0)
        if flag(bias, instance .. "'s bias") then
          self.bias = base.filled_parameter(instance, {channels}, 0.0)
        end
      end
      return self, {eps = base.epsilon_of(eps, instance, 1e-5)}
    end,
    function(self, how, x)
      base.check_input(x, instance)
      check_dimensions(x, instance, n)
      return of.instance_norm(x, nil, nil, self.weight, self.bias, true, 0.1, how.eps)
    end)
end

plan.nn = core.forbid_absent(nn, "nn")
plan.F = core.forbid_absent(F, "F")
