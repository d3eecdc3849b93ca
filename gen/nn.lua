-- nn.lua: modules and functions, as in torch.nn and torch.nn.functional.
local core, base, plan = ...
local fail = base.fail

-- What is known of each module that a plan makes: its class, the names of its attributes in the
-- order in which they were given, the line that made it and, once it is part of a model, its index
-- and path there.
local about = {}

local nn, F = {}, base.F
local of = {}        -- the functions, whatever a plan does to F
for name, f in pairs(F) do of[name] = f end

-- --------------------------------------------------------------------------------- module classes

local function set_attribute(self, key, value)
  local known = about[self]
  if not known.seen[key] then
    known.seen[key] = true
    known.keys[#known.keys + 1] = key
  end
  rawset(self, key, value)
end

local function why_not_callable(known)
  if not base.model then
    fail("train and infer call the model; a plan does not call it by itself")
  end
  fail("the %s of line %d is not part of the model: keep it as an attribute of one of its modules, "
    .. "as self.name = ..., or in an nn.ModuleList", known.class_name, known.line)
end

-- A forward of ours calls no function of the plan's.
local call_own = core.unwatched(function(index, forward, self, ...)
  core.enter(index, ...)
  return core.leave(forward(self, ...))
end)

-- Notes the call in the graph around the module's forward.
local function run(self, index, forward, ...)
  core.enter(index, ...)
  return core.leave(forward(self, ...))
end

local function call(self, ...)
  local known = about[self]
  if not known.index then why_not_callable(known) end
  local forward, policy = self.forward, base.policy_of(self)
  if forward == known.own and not policy then
    return call_own(known.index, forward, self, ...)
  end
  if type(forward) ~= "function" then
    fail("%s has no forward: write function self:forward(...) in its nn.module", known.class_name)
  end
  if not policy then return run(self, known.index, forward, ...) end
  return base.as_type(policy.outputs,
    run(self, known.index, forward, base.as_type(policy.inputs, ...)))
end

-- A class. is_own: neither its init nor the forward that this gives calls functions of the plan's.
local function make_class(name, init, is_own)
  local class = base.make("module class", {})
  local instances = {
    __newindex = set_attribute,
    __call = call,
    __tostring = function() return name end,
    __name = name,
    __metatable = false,
  }
  local function new(_, ...)
    local self = base.make("module", {})
    local known = {class = class, class_name = name, keys = {}, seen = {}, line = core.line(),
      own = false, index = false, path = false, parameters = false, children = false}
    about[self] = known
    setmetatable(self, instances)
    init(self, ...)
    known.own = is_own and rawget(self, "forward")
    return self
  end
  return setmetatable(class, {
    __call = is_own and core.unwatched(new) or new,
    __tostring = function() return name end,
    __metatable = false,
  })
end

-- nn.module("Name", function(self, ...) ... end): a class. Called, it makes an instance.
function nn.module(name, init)
  base.expect(name, "string", "the name of nn.module")
  core.check_name(name, "the name of nn.module")
  base.expect(init, "function", "what nn.module is given after the name")
  return make_class(name, init, false)
end

local function own_class(name, init) return make_class(name, init, true) end

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
  return function(sizes)
    base.expect(sizes, "table", "what " .. what .. " is given, as in " .. what .. "{20, 10},")
    keys_of(sizes, what)
    local shape, name = base.sizes(sizes, what), type_among(types, sizes, what)
    if core.recording() then return made_in_forward(what, shape, a, name) end
    core.parameter(what, shape, init, a, b) -- checks the shape
    local d = base.make("description", {shape = base.sizes(sizes, what)})
    described[d] = {shape = shape, init = init, a = a, b = b, type = name, line = core.line(),
      placed = {}}
    return d
  end
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

local function start(kind, a, b)
  local s = base.make("initializer", base.named("nn.init." .. kind))
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
  constant = function(value) return start("constant", finite(value, "nn.init.constant"), 0.0) end,
  uniform = function(low, high)
    return start("uniform", finite(low, "nn.init.uniform's low"),
      finite(high, "nn.init.uniform's high"))
  end,
  normal = function(mean, deviation)
    return start("normal", finite(mean, "nn.init.normal's mean"),
      finite(deviation, "nn.init.normal's deviation"))
  end,
}, "nn.init")

-- nn.Parameter{out, in, init = nn.init.uniform(-1, 1)} or nn.Parameter(randn{out, in})
function nn.Parameter(t)
  local d = described[t]
  if d and d.type ~= "float32" then fail("nn.Parameter must be float32, not %s", d.type) end
  if d then return core.parameter("nn.Parameter", d.shape, d.init, d.a, d.b) end
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

local LINEAR_OPTIONS = {"bias", "init"}

-- nn.Linear(inputs, outputs, {bias =, init =}): init is of the weight.
nn.Linear = own_class("Linear", function(self, inputs, outputs, options)
  inputs = base.integer(inputs, "Linear's number of inputs", 1, LARGEST)
  outputs = base.integer(outputs, "Linear's number of outputs", 1, LARGEST)
  options = base.options(options, "Linear", LINEAR_OPTIONS)
  local has_bias = options.bias == nil or base.boolean(options.bias, "Linear's bias")
  local bound = 1 / math.sqrt(inputs)
  self.in_features, self.out_features = inputs, outputs
  self.weight = core.parameter("Linear", {outputs, inputs},
    beginning(options, "Linear", "uniform", -bound, bound))
  if has_bias then self.bias = core.parameter("Linear", {outputs}, "uniform", -bound, bound) end

  function self:forward(x)
    base.expect(x, "tensor", "the input of Linear")
    return of.linear(x, self.weight, self.bias)
  end
end)

local EMBEDDING_OPTIONS = {"init"}

-- nn.Embedding(rows, size, {init =})
nn.Embedding = own_class("Embedding", function(self, rows, size, options)
  options = base.options(options, "Embedding", EMBEDDING_OPTIONS)
  rows = base.integer(rows, "Embedding's number of rows", 1, LARGEST)
  size = base.integer(size, "Embedding's size", 1, LARGEST)
  self.num_embeddings, self.embedding_dim = rows, size
  self.weight = core.parameter("Embedding", {rows, size},
    beginning(options, "Embedding", "normal", 0.0, 1.0))

  function self:forward(ids)
    base.expect(ids, "tensor", "the input of Embedding")
    return of.embedding(ids, self.weight)
  end
end)

-- What the styles know, whatever a plan does to nn.
base.Linear, base.Embedding = nn.Linear, nn.Embedding

-- Sizes of the last dimensions: a number, or a list of them.
local function normalized_sizes(v, who)
  if base.kind(v) ~= "table" then v = {v} end
  if rawlen(v) == 0 then fail("%s takes the sizes of the last dimensions", who) end
  local sizes = {}
  for i = 1, rawlen(v) do sizes[i] = base.integer(rawget(v, i), who .. "'s size", 1, LARGEST) end
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

-- nn.LayerNorm(sizes, {eps =, elementwise_affine =, bias =})
nn.LayerNorm = own_class("LayerNorm", function(self, sizes, options)
  options = base.options(options, "LayerNorm", {"eps", "elementwise_affine", "bias"})
  sizes = normalized_sizes(sizes, "LayerNorm")
  local eps = epsilon(options, "LayerNorm", 1e-5)
  if flag(options, "elementwise_affine", "LayerNorm") then
    self.weight = filled("LayerNorm", sizes, 1.0)
    if flag(options, "bias", "LayerNorm") then self.bias = filled("LayerNorm", sizes, 0.0) end
  end

  function self:forward(x)
    base.expect(x, "tensor", "the input of LayerNorm")
    return of.layer_norm(x, sizes, self.weight, self.bias, eps)
  end
end)

local RMSNORM_OPTIONS = {"eps", "elementwise_affine"}

-- nn.RMSNorm(sizes, {eps =, elementwise_affine =})
nn.RMSNorm = own_class("RMSNorm", function(self, sizes, options)
  options = base.options(options, "RMSNorm", RMSNORM_OPTIONS)
  sizes = normalized_sizes(sizes, "RMSNorm")
  local eps = epsilon(options, "RMSNorm", nil)
  if flag(options, "elementwise_affine", "RMSNorm") then
    self.weight = filled("RMSNorm", sizes, 1.0)
  end

  function self:forward(x)
    base.expect(x, "tensor", "the input of RMSNorm")
    return of.rms_norm(x, sizes, self.weight, eps)
  end
end)

-- A number for both dimensions of an image, or {y, x}.
local function both(v, who)
  if base.kind(v) ~= "table" then v = {v, v} end
  if rawlen(v) ~= 2 then fail("%s is a number, or {y, x}", who) end
  return {base.integer(rawget(v, 1), who, 0, 1 << 20), base.integer(rawget(v, 2), who, 0, 1 << 20)}
end

-- nn.Conv2d(in, out, kernel, {stride =, padding =, dilation =, groups =, bias =})
nn.Conv2d = own_class("Conv2d", function(self, inputs, outputs, kernel, options)
  options = base.options(options, "Conv2d", {"stride", "padding", "dilation", "groups", "bias"})
  inputs = base.integer(inputs, "Conv2d's number of input channels", 1, LARGEST)
  outputs = base.integer(outputs, "Conv2d's number of output channels", 1, LARGEST)
  kernel = both(kernel, "Conv2d's kernel")
  local groups = base.integer(options.groups or 1, "Conv2d's groups", 1, LARGEST)
  if inputs % groups ~= 0 or outputs % groups ~= 0 then
    fail("Conv2d: %d channels in and %d out do not part into %d groups", inputs, outputs, groups)
  end
  if kernel[1] < 1 or kernel[2] < 1 then fail("Conv2d's kernel must be at least 1") end
  local how = {stride = options.stride, padding = options.padding, dilation = options.dilation,
    groups = groups}
  local bound = 1 / math.sqrt(inputs // groups * kernel[1] * kernel[2])
  self.weight = core.parameter("Conv2d", {outputs, inputs // groups, kernel[1], kernel[2]},
    "uniform", -bound, bound)
  if flag(options, "bias", "Conv2d") then
    self.bias = core.parameter("Conv2d", {outputs}, "uniform", -bound, bound)
  end

  function self:forward(x)
    base.expect(x, "tensor", "the input of Conv2d")
    return of.conv2d(x, self.weight, self.bias, how)
  end
end)

-- Modules without parameters, each a call of one function with the module's arguments.
local function plain(class_name, name)
  nn[class_name] = own_class(class_name, function(self, ...)
    local given = table.pack(...)
    function self:forward(x)
      base.expect(x, "tensor", "the input of " .. class_name)
      return of[name](x, table.unpack(given, 1, given.n))
    end
  end)
end

plain("ReLU", "relu")
plain("SiLU", "silu")
plain("Tanh", "tanh")
plain("Sigmoid", "sigmoid")
plain("GELU", "gelu")             -- nn.GELU("tanh")
plain("Softmax", "softmax")       -- nn.Softmax(dim)
plain("Dropout", "dropout")       -- nn.Dropout(p): nothing where the plan only computes
plain("MaxPool2d", "max_pool2d")  -- nn.MaxPool2d(kernel, {stride =, padding =})

-- nn.Flatten(first, last): all but the first dimension, unless it is told otherwise.
nn.Flatten = own_class("Flatten", function(self, first, last)
  function self:forward(x)
    base.expect(x, "tensor", "the input of Flatten")
    return of.flatten(x, first == nil and 1 or first, last)
  end
end)

nn.Identity = own_class("Identity", function(self)
  function self:forward(...) return ... end
end)

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
  keep_all(self, "ModuleList", members)
  function self:forward() fail("a ModuleList is not called: call its modules") end
end)
base.ModuleList = nn.ModuleList

plan.nn = core.forbid_absent(nn, "nn")
plan.F = core.forbid_absent(F, "F")

-- ------------------------------------------------------------------------- the tree of a model

local function forbid_key(known, key)
  if key == nil then return end
  if type(key) ~= "string" then
    fail("the %s of line %d holds a module or parameter under a key that is no name: %s",
      known.class_name, known.line, tostring(key))
  end
  fail("the %s of line %d: a name must not hold a dot: '%s'", known.class_name, known.line, key)
end

-- What a module itself holds, in the order of its attributes: its parameters and its children, each
-- a list of a name, then the thing, and so on. While `looked_at` is a table modules are known to
-- stay as they are, and are looked at once.
local looked_at

local function members(module)
  local known = looked_at and looked_at[module]
  if not known then
    known = table.pack(core.members(module, about[module].keys, base.kinds))
    if looked_at then looked_at[module] = known end
  end
  return known
end

function base.look_once(is_on) looked_at = is_on and {} or nil end

function base.parameters(module)
  local found = members(module)
  forbid_key(about[module], found[3])
  return found[1]
end

function base.children(module)
  local found = members(module)
  forbid_key(about[module], found[4])
  return found[2]
end

function base.line_of(module) return about[module].line end
function base.class(module) return about[module].class end
function base.class_name(module) return about[module].class_name end
function base.index(module) return about[module].index end

local function take_up(module, name, parent, path, policy, unit)
  local known = about[module]
  policy = base.policy_of(module) or policy
  if known.index then
    fail("the %s of line %d is in two places of the model: '%s' and '%s'", known.class_name,
      known.line, known.path, path)
  end
  known.path = path
  known.index = core.add_module(name, known.class_name, parent, known.line)
  unit = base.unit_of(module, known.index) or unit
  if unit then core.set_unit(known.index, unit) end
  local prefix, taken = path == "" and "" or path .. ".", {}
  local function take(child)
    if taken[child] then
      fail("the %s of line %d holds two things of the name '%s'", known.class_name, known.line,
        child)
    end
    taken[child] = true
  end
  local parameters, children, bad_parameter, bad_child =
    core.members(module, known.keys, base.kinds)
  forbid_key(known, bad_parameter)
  forbid_key(known, bad_child)
  known.parameters, known.children = parameters, children
  for i = 1, #parameters, 2 do
    local name, tensor = parameters[i], parameters[i + 1]
    take(name)
    core.add_parameter(tensor, name, known.index)
    if policy then core.set_precision(tensor, policy.used, policy.reduced) end
  end
  for i = 1, #children, 2 do
    local name, child = children[i], children[i + 1]
    take(name)
    take_up(child, name, known.index, prefix .. name, policy, unit)
  end
end

-- Calls f(path, tensor) for every parameter that the graph has of the model, in PyTorch's order.
function base.each_parameter(f)
  local function visit(module)
    local known = about[module]
    local path, parameters, children = known.path, known.parameters, known.children
    for i = 1, #parameters, 2 do
      local name, tensor = parameters[i], parameters[i + 1]
      f(path == "" and name or path .. "." .. name, tensor)
    end
    for i = 2, #children, 2 do visit(children[i]) end
  end
  visit(base.model)
end

-- The model becomes part of the graph: its modules and its parameters, in PyTorch's order.
base.take_up = core.unwatched(function(model)
  base.model = model
  take_up(model, "", -1, "")
end)
