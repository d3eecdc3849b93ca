-- nn_layers.lua: modules of images, as in torch.nn.
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
    fail(n == 2 and "%s is a number, or {y, x}" or "%s is a number", who)
  end
  local list = {}
  for i = 1, n do list[i] = base.integer(rawget(v, i), who, 0, 1 << 20) end
  return list
end

-- nn.Conv1d, nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
for n = 1, 2 do
  local who = "Conv" .. n .. "d"
  local convolve = of["conv" .. n .. "d"]
  nn[who] = own_class(who, {"weight", "bias"},
    function(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode,
        device, dtype)
      base.only_float32(dtype, who)
      local inputs = base.integer(in_channels, who .. "'s number of input channels", 1, LARGEST)
      local outputs = base.integer(out_channels, who .. "'s number of output channels", 1, LARGEST)
      local kernel, taps = sizes_of(kernel_size, n, who .. "'s kernel"), 1
      groups = base.integer(groups == nil and 1 or groups, who .. "'s groups", 1, LARGEST)
      if inputs % groups ~= 0 or outputs % groups ~= 0 then
        fail("%s: %d channels in and %d out do not part into %d groups", who, inputs, outputs, groups)
      end
      local shape = {outputs, inputs // groups}
      for i, k in ipairs(kernel) do
        if k < 1 then fail("%s's kernel must be at least 1", who) end
        shape[i + 2], taps = k, taps * k
      end
      local bound = 1 / math.sqrt(inputs // groups * taps)
      local self = {weight = core.parameter(who, shape, "uniform", -bound, bound)}
      if flag(bias, who .. "'s bias") then
        self.bias = core.parameter(who, {outputs}, "uniform", -bound, bound)
      end
      return self, {stride = stride, padding = padding, dilation = dilation, groups = groups}
    end,
    function(self, how, x)
      base.check_input(x, who)
      return convolve(x, self.weight, self.bias, how.stride, how.padding, how.dilation, how.groups)
    end)

  -- nn.MaxPool1d, nn.MaxPool2d(kernel_size, stride, padding)
  plain("MaxPool" .. n .. "d", "max_pool" .. n .. "d",
    function(kernel_size, stride, padding, dilation, return_indices, ceil_mode)
      return {}, table.pack(kernel_size, stride, padding, dilation, ceil_mode)
    end)
end

plan.nn = core.forbid_absent(nn, "nn")
plan.F = core.forbid_absent(F, "F")
