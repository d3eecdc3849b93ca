-- nn.lua: modules and functions, as in torch.nn and torch.nn.functional.
local core, base, plan = ...
local fail = base.fail

local state_of = {}  -- of instances of our classes: what their forward needs beside attributes

local nn, F = {}, base.F
local of = {}        -- the functions, whatever a plan does to F
for name, f in pairs(F) do of[name] = f end

-- --------------------------------------------------------------------------------- module classes

-- Notes the call in the graph around the module's forward.
local function run(self, forward, ...)
  core.enter(self, ...)
  return core.leave(forward(self, ...))
end

local function call(self, ...)
  core.check_callable(self)
  local forward, policy = self.forward, base.policy_of(self)
  if type(forward) ~= "function" then
    fail("%s has no forward: write function self:forward(...) in its nn.module",
      core.class_name(self))
  end
  core.check_given(core.class_name(self) .. "'s forward", forward, 1, ...)
  if not policy then return run(self, forward, ...) end
  return base.as_type(policy.outputs, run(self, forward, base.as_type(policy.inputs, ...)))
end

local function metatable(name, call, index)
  return {__index = index, __newindex = core.set_attribute, __call = call,
    __tostring = function() return name end, __name = name, __metatable = false}
end

local function make_class(name, new)
  return setmetatable(base.make("module class", {}), {
    __call = new,
    __tostring = function() return name end,
    __metatable = false,
  })
end

-- nn.module("Name", function(self, ...) ... end): a class. Called, it makes an instance.
function nn.module(name, init)
  base.expect(name, "string", "the name of nn.module")
  core.check_name(name, "the name of nn.module")
  base.expect(init, "function", "what nn.module is given after the name")
  local instances = metatable(name, call)
  return make_class(name, function(class, ...)
    local self = setmetatable({}, instances)
    core.make_module(self, class, name)
    core.check_given(name, init, 1, ...)
    init(self, ...)
    return self
  end)
end

-- A class of ours. keys: the names of its attributes, in order. new(...): an instance's attributes,
-- and what it keeps for forward(self, what it kept, ...). Neither calls functions of the plan's; an
-- instance that the plan gives a forward of its own is called as the plan's are.
local function own_class(name, keys, new, forward)
  local function forward_of(self, ...)
    core.check_given(name .. "'s forward", forward, 2, ...)
    return forward(self, state_of[self], ...)
  end
  local call_own = core.calls(function(self, ...)
    local policy = base.policy_of(self)
    core.check_given(name .. "'s forward", forward, 2, ...)
    if not policy then
      core.enter(self, ...)
      return core.leave(forward(self, state_of[self], ...))
    end
    core.check_callable(self)
    return base.as_type(policy.outputs, run(self, forward_of, base.as_type(policy.inputs, ...)))
  end, call)
  local instances = metatable(name, call_own, {forward = forward_of})
  return make_class(name, core.unwatched(function(class, ...)
    core.check_given(name, new, 0, ...)
    local self, state = new(...)
    core.make_module(self, class, name, keys)
    if state then state_of[self] = state end
    return setmetatable(self, instances)
  end))
end

-- ------------------------------------------------------------------------------------- parameters

-- randn{20, 10} and the like: what is to be filled how. Of a batch, or of an nn.Parameter. Of a
-- batch it may be of another type: zeros{20, 10, dtype = "bool"}.
local described = {}

local function keys_of(sizes, what)
  for key in pairs(sizes) do
    if not math.type(key) and key ~= "dtype" then
      fail("%s knows no '%s'%s", what, key, core.suggestion(key, {"dtype"}))
    end
  end
end

-- The type that the sizes name, one of `types`, or the first of these.
local function type_among(types, sizes, what)
  local name = rawget(sizes, "dtype")
  if name == nil then return types[1] end
  for _, known in ipairs(types) do
    if name == known then return name end
  end
  fail("%s: its dtype is one of %s, not %s", what, table.concat(types, ", "), base.a(name))
end

-- Inside forward, zeros{...} and ones{...} are tensors, F.zeros and F.ones.
local function made_in_forward(what, shape, value, name)
  if what ~= "zeros" and what ~= "ones" then
    fail("%s describes an input of the step: it belongs in the batch", what)
  end
  return of.full(shape, value, name)
end

local function describe(what, init, a, b, types)
  return core.counted(what, function(sizes)
    base.expect(sizes, "table", "what " .. what .. " is given, as in " .. what .. "{20, 10},")
    keys_of(sizes, what)
    local shape, name = base.sizes(sizes, what), type_among(types, sizes, what)
    if core.recording() then return made_in_forward(what, shape, a, name) end
    core.parameter(what, shape, init, a, b) -- checks the shape
    local d = base.make("description", {shape = base.sizes(sizes, what)})
    described[d] = {shape = shape, init = init, a = a, b = b, type = name, line = core.line(),
      placed = {}}
    return d
  end)
end

local ANY = {"float32", "bfloat16", "int32", "int64", "bool"}
local FLOATING = {"float32", "bfloat16"}

plan.randn = describe("randn", "normal", 0.0, 1.0, FLOATING)
plan.rand  = describe("rand", "uniform", 0.0, 1.0, FLOATING)
plan.zeros = describe("zeros", "constant", 0.0, 0.0, ANY)
plan.ones  = describe("ones", "constant", 1.0, 0.0, ANY)

-- randint(high){20, 10}: whole numbers from 0 to high - 1; or from low on: randint(low, high){...}.
function plan.randint(low, high)
  if high == nil then low, high = 0, low end
  local most = 1 << 31
  low = base.integer(low, "randint's lowest number", -most, most - 1)
  high = base.integer(high, "randint's end", low + 1, most)
  return describe("randint", "uniform", low + 0.0, high + 0.0, {"int32", "int64", "bool"})
end

-- tokens(words){batch, sequence}: of the text or the file of tokens that the program is given, so
-- many in every step, on from where the step before ended; tokens(words, 1): each one token
-- further, which is what a language model is to tell. Their numbers are below `words`.
function plan.tokens(words, shift)
  words = base.integer(words, "the number of words that tokens is given", 1, (1 << 31) - 1)
  shift = base.integer(shift == nil and 0 or shift, "the shift that tokens is given", 0, 1 << 20)
  return describe("tokens", "tokens", words + 0.0, shift + 0.0, {"int32"})
end

function base.described(d) return described[d] end

-- How a parameter begins: nn.Parameter{32, 10, init = nn.init.normal(0, 0.02)}.
local starts = {}

local START_NAMES = {constant = "nn.init.constant", uniform = "nn.init.uniform",
  normal = "nn.init.normal"}

local function start(kind, a, b)
  local s = base.make("initializer", base.named(START_NAMES[kind]))
  starts[s] = {kind = kind, a = a, b = b}
  return s
end

local function finite(v, what)
  if type(v) ~= "number" or v - v ~= 0 then
    fail("%s must be a finite number, not %s", what, math.type(v) and tostring(v) or base.a(v))
  end
  return v + 0.0
end

nn.init = core.forbid_absent({
  constant = core.unwatched(function(value)
    return start("constant", finite(value, "nn.init.constant"), 0.0)
  end),
  uniform = core.unwatched(function(low, high)
    return start("uniform", finite(low, "nn.init.uniform's low"),
      finite(high, "nn.init.uniform's high"))
  end),
  normal = core.unwatched(function(mean, deviation)
    return start("normal", finite(mean, "nn.init.normal's mean"),
      finite(deviation, "nn.init.normal's deviation"))
  end),
}, "nn.init")

local distributed = {}       -- parameters that distribute placed: {tensor =, placed =, line =} each

-- One that begins as this says, and lies as distribute did.
local function parameter_as(d)
  if d.type ~= "float32" then fail("nn.Parameter must be float32, not %s", d.type) end
  local tensor = core.parameter("nn.Parameter", d.shape, d.init, d.a, d.b)
  local p = {tensor = tensor, placed = {}, line = core.line()}
  for dim, placement in pairs(d.placed) do p.placed[dim] = placement end
  distributed[#distributed + 1] = p
  return tensor
end

-- When the model is part of the graph.
function base.place_parameters()
  for _, p in ipairs(distributed) do
    core.place_parameter(p.tensor, base.placed_in_graph(p.placed), p.line)
  end
end

-- nn.Parameter{out, in, init = nn.init.uniform(-1, 1)} or nn.Parameter(randn{out, in}); the latter
-- may be distributed: nn.Parameter(distribute(randn{out, in}, mesh.tp, Shard(0)))
function nn.Parameter(t)
  local d = described[t]
  if d then return parameter_as(d) end
  base.expect(t, "table", "what nn.Parameter is given")
  for key in pairs(t) do
    if not math.type(key) and key ~= "init" then
      fail("nn.Parameter knows no '%s'%s", key, core.suggestion(key, {"init"}))
    end
  end
  local s = starts[base.expect(t.init, "initializer",
    "nn.Parameter's init, such as nn.init.normal(0, 0.02),")]
  return core.parameter("nn.Parameter", base.sizes(t, "nn.Parameter"), s.kind, s.a, s.b)
end

-- ---------------------------------------------------------------------------------------- modules

local LARGEST = 1 << 40

-- What an option `init` says of how a weight begins, as core.parameter takes it; else this.
local function beginning(options, who, kind, a, b)
  if options.init == nil then return kind, a, b end
  local s = starts[base.expect(options.init, "initializer",
    who .. "'s init, such as nn.init.normal(0, 0.02),")]
  return s.kind, s.a, s.b
end

local function check_input(x, name)
  if not base.is_tensor(x) then base.expect(x, "tensor", "the input of " .. name) end
end

local LINEAR_OPTIONS = {"bias", "init"}

-- nn.Linear(inputs, outputs, {bias =, init =}): init is of the weight.
nn.Linear = own_class("Linear", {"in_features", "out_features", "weight", "bias"},
  function(inputs, outputs, options)
    inputs = base.integer(inputs, "Linear's number of inputs", 1, LARGEST)
    outputs = base.integer(outputs, "Linear's number of outputs", 1, LARGEST)
    options = base.options(options, "Linear", LINEAR_OPTIONS)
    local has_bias = options.bias == nil or base.boolean(options.bias, "Linear's bias")
    local bound = 1 / math.sqrt(inputs)
    return {
      in_features = inputs, out_features = outputs,
      weight = core.parameter("Linear", {outputs, inputs},
        beginning(options, "Linear", "uniform", -bound, bound)),
      bias = has_bias and core.parameter("Linear", {outputs}, "uniform", -bound, bound) or nil,
    }
  end,
  function(self, _, x)
    check_input(x, "Linear")
    return of.linear(x, self.weight, self.bias)
  end)

local EMBEDDING_OPTIONS = {"init"}

-- nn.Embedding(rows, size, {init =})
nn.Embedding = own_class("Embedding", {"num_embeddings", "embedding_dim", "weight"},
  function(rows, size, options)
    options = base.options(options, "Embedding", EMBEDDING_OPTIONS)
    rows = base.integer(rows, "Embedding's number of rows", 1, LARGEST)
    size = base.integer(size, "Embedding's size", 1, LARGEST)
    return {
      num_embeddings = rows, embedding_dim = size,
      weight = core.parameter("Embedding", {rows, size},
        beginning(options, "Embedding", "normal", 0.0, 1.0)),
    }
  end,
  function(self, _, ids)
    check_input(ids, "Embedding")
    return of.embedding(ids, self.weight)
  end)

-- What the styles know, whatever a plan does to nn.
base.Linear, base.Embedding = nn.Linear, nn.Embedding

-- Sizes of the last dimensions: a number, or a list of them.
local function normalized_sizes(v, who)
  if base.kind(v) ~= "table" then v = {v} end
  local sizes, n = {}, base.length(v, "what " .. who .. " is given")
  if n == 0 then fail("%s takes the sizes of the last dimensions", who) end
  for i = 1, n do sizes[i] = base.integer(rawget(v, i), who .. "'s size", 1, LARGEST) end
  return sizes
end

local function flag(options, name, who)
  return options[name] == nil or base.boolean(options[name], who .. "'s " .. name)
end

local function epsilon(options, who, otherwise)
  if options.eps == nil then return otherwise end
  return base.number(options.eps, who .. "'s eps", 0, math.huge)
end

local function filled(who, sizes, value)
  return core.parameter(who, sizes, "constant", value, 0.0)
end

local LAYERNORM_OPTIONS = {"eps", "elementwise_affine", "bias"}

-- nn.LayerNorm(sizes, {eps =, elementwise_affine =, bias =})
nn.LayerNorm = own_class("LayerNorm", {"weight", "bias"},
  function(sizes, options)
    options = base.options(options, "LayerNorm", LAYERNORM_OPTIONS)
    sizes = normalized_sizes(sizes, "LayerNorm")
    local self, eps = {}, epsilon(options, "LayerNorm", 1e-5)
    if flag(options, "elementwise_affine", "LayerNorm") then
      self.weight = filled("LayerNorm", sizes, 1.0)
      if flag(options, "bias", "LayerNorm") then self.bias = filled("LayerNorm", sizes, 0.0) end
    end
    return self, {sizes = sizes, eps = eps}
  end,
  function(self, kept, x)
    check_input(x, "LayerNorm")
    return of.layer_norm(x, kept.sizes, self.weight, self.bias, kept.eps)
  end)

local RMSNORM_OPTIONS = {"eps", "elementwise_affine"}

-- nn.RMSNorm(sizes, {eps =, elementwise_affine =})
nn.RMSNorm = own_class("RMSNorm", {"weight"},
  function(sizes, options)
    options = base.options(options, "RMSNorm", RMSNORM_OPTIONS)
    sizes = normalized_sizes(sizes, "RMSNorm")
    local self, eps = {}, epsilon(options, "RMSNorm", nil)
    if flag(options, "elementwise_affine", "RMSNorm") then
      self.weight = filled("RMSNorm", sizes, 1.0)
    end
    return self, {sizes = sizes, eps = eps}
  end,
  function(self, kept, x)
    check_input(x, "RMSNorm")
    return of.rms_norm(x, kept.sizes, self.weight, kept.eps)
  end)

-- A number for both dimensions of an image, or {y, x}.
local function both(v, who)
  if base.kind(v) ~= "table" then v = {v, v} end
  if base.length(v, who) ~= 2 then fail("%s is a number, or {y, x}", who) end
  return {base.integer(rawget(v, 1), who, 0, 1 << 20), base.integer(rawget(v, 2), who, 0, 1 << 20)}
end

local CONV2D_OPTIONS = {"stride", "padding", "dilation", "groups", "bias"}

-- nn.Conv2d(in, out, kernel, {stride =, padding =, dilation =, groups =, bias =})
nn.Conv2d = own_class("Conv2d", {"weight", "bias"},
  function(inputs, outputs, kernel, options)
    options = base.options(options, "Conv2d", CONV2D_OPTIONS)
    inputs = base.integer(inputs, "Conv2d's number of input channels", 1, LARGEST)
    outputs = base.integer(outputs, "Conv2d's number of output channels", 1, LARGEST)
    kernel = both(kernel, "Conv2d's kernel")
    local groups = base.integer(options.groups or 1, "Conv2d's groups", 1, LARGEST)
    if inputs % groups ~= 0 or outputs % groups ~= 0 then
      fail("Conv2d: %d channels in and %d out do not part into %d groups", inputs, outputs, groups)
    end
    if kernel[1] < 1 or kernel[2] < 1 then fail("Conv2d's kernel must be at least 1") end
    local bound = 1 / math.sqrt(inputs // groups * kernel[1] * kernel[2])
    local self = {
      weight = core.parameter("Conv2d", {outputs, inputs // groups, kernel[1], kernel[2]},
        "uniform", -bound, bound),
    }
    if flag(options, "bias", "Conv2d") then
      self.bias = core.parameter("Conv2d", {outputs}, "uniform", -bound, bound)
    end
    return self, {stride = options.stride, padding = options.padding, dilation = options.dilation,
      groups = groups}
  end,
  function(self, how, x)
    check_input(x, "Conv2d")
    return of.conv2d(x, self.weight, self.bias, how)
  end)

-- Modules without parameters, each a call of one function with the module's arguments: `new` gives
-- them a table and what it was given.
local function plain(class_name, name, new)
  nn[class_name] = own_class(class_name, {}, new,
    function(_, given, x)
      check_input(x, class_name)
      return of[name](x, table.unpack(given, 1, given.n))
    end)
end

local function nothing() return {}, {n = 0} end

plain("ReLU", "relu", nothing)
plain("SiLU", "silu", nothing)
plain("Tanh", "tanh", nothing)
plain("Sigmoid", "sigmoid", nothing)
plain("GELU", "gelu", function(approximate) return {}, table.pack(approximate) end)
plain("Softmax", "softmax", function(dim)
  if dim == nil then fail("Softmax: say over which dimension it goes: nn.Softmax(-1), the last") end
  return {}, table.pack(dim)
end)
-- Nothing where the plan only computes.
plain("Dropout", "dropout", function(p) return {}, table.pack(p) end)
-- nn.MaxPool2d(kernel, {stride =, padding =})
plain("MaxPool2d", "max_pool2d",
  function(kernel, options) return {}, table.pack(kernel, options) end)

-- nn.Flatten(first, last): all but the first dimension, unless it is told otherwise.
nn.Flatten = own_class("Flatten", {},
  function(first, last) return {}, {first = first == nil and 1 or first, last = last} end,
  function(_, dims, x)
    check_input(x, "Flatten")
    return of.flatten(x, dims.first, dims.last)
  end)

nn.Identity = own_class("Identity", {}, function() return {} end,
  function(_, _, ...) return ... end)

local function keep_all(self, what, members)
  for i = 1, #members do
    self[i] = base.expect(members[i], "module", string.format("%s's member %d", what, i))
  end
end

-- nn.Sequential(a, b, ...): one after the other. Their names are "0", "1" ..., as in PyTorch.
nn.Sequential = nn.module("Sequential", function(self, ...)
  keep_all(self, "Sequential", {...})
  function self:forward(x)
    for i = 1, #self do x = self[i](x) end
    return x
  end
end)

-- nn.ModuleList{a, b, ...}: list[1], #list and ipairs(list) as of any list in Lua; the names of its
-- modules are "0", "1" ..., as in PyTorch.
nn.ModuleList = nn.module("ModuleList", function(self, members)
  members = members or {}
  base.expect(members, "table", "what nn.ModuleList is given")
  base.length(members, "what nn.ModuleList is given")
  keep_all(self, "ModuleList", members)
  function self:forward() fail("a ModuleList is not called: call its modules") end
end)
base.ModuleList = nn.ModuleList

plan.nn = core.forbid_absent(nn, "nn")
plan.F = core.forbid_absent(F, "F")

-- ------------------------------------------------------------------------- the tree of a model

-- children(module): a list of a name, then the module of this name, and so on.
base.children, base.index = core.children, core.index
base.line_of, base.class, base.class_name = core.line_of, core.class_of, core.class_name

-- The model becomes part of the graph: its modules and its parameters, in PyTorch's order.
base.take_up = core.unwatched(function(model)
  base.model = model
  core.take_up(model, base.policies, base.calls_of_modules, base.unit_of)
end)
