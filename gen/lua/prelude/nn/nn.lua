-- nn.lua: modules and functions, as in torch.nn and torch.nn.functional.
local core, base, plan = ...
local fail = base.fail

local state_of = {}  -- of instances of our classes: the data that their forward needs beyond attributes

local nn, F = {}, base.F
local of = {}        -- the functions, whatever a plan does to F
for name, f in pairs(F) do of[name] = f end

-- --------------------------------------------------------------------------------- module classes

-- By module: whether it trains, where the plan has said so.
local modes = {}
base.modes_of_modules = modes

-- The results, after base.training is as before.
local function back(before, ...)
  base.training = before
  return ...
end

-- Records the call in the graph around the module's forward.
local function run(self, forward, ...)
  core.enter(self, ...)
  local mode = modes[self]
  if mode == nil then return core.leave(forward(self, ...)) end
  local before = base.training
  base.training = mode and base.of_training
  return core.leave(back(before, forward(self, ...)))
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

-- module:requires_grad_(requires_grad): as in PyTorch, for all parameters in and below the module.
local function requires_grad(self, requires_grad_)
  base.expect(self, "module", "what requires_grad_ is called of, as in model:requires_grad_(false),")
  base.set_trained("requires_grad_", self, requires_grad_)
  return self
end

-- Methods of every module (nn_state.lua has more).
local methods = {requires_grad_ = requires_grad}
base.module_methods = methods

local function metatable(name, call, own)
  local function index(self, key)
    local v = own and own[key]
    if v ~= nil then return v end
    if key == "training" then return base.trains(self) end
    return methods[key]
  end
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

-- By name of a class of nn.module: its function, for the reference (reference.lua).
local inits = {}
base.inits = inits

--- # Modules
--- nn.module(name, init): a class: `init(self, ...)` sets modules and parameters, and `function self:forward(...)`. A
--- call of the class makes a module.
function nn.module(name, init)
  base.expect(name, "string", "the name of nn.module")
  core.check_name(name, "the name of nn.module")
  base.expect(init, "function", "what nn.module is given after the name")
  local instances = metatable(name, call)
  inits[name] = init
  return make_class(name, function(class, ...)
    local self = setmetatable({}, instances)
    core.make_module(self, class, name)
    core.check_given(name, init, 1, ...)
    init(self, ...)
    return self
  end)
end

-- A module whose class is known elsewhere: base.Linear, say; or of none that styles know.
function base.module_of(class, name)
  local self = setmetatable({}, metatable(name, call))
  core.make_module(self, class, name)
  return self
end

-- By name of a class: the function of its arguments, without `self`, for the reference (reference.lua).
local constructors = {}
base.constructors = constructors

-- A class of ours. keys: the names of its attributes, in order. new(...): an instance's attributes,
-- the state for forward(self, state, ...), and names of its own in the place of keys. Neither calls functions of the plan's. An instance
-- to which the plan assigns a forward is called like the plan's own.
local function own_class(name, keys, new, forward)
  local made = core.counted(name, new, true)
  constructors[name] = new
  local function forward_of(self, ...)
    core.check_given(name .. "'s forward", forward, 2, ...)
    return forward(self, state_of[self], ...)
  end
  local call_own = core.calls(function(self, ...)
    local policy = base.policy_of(self)
    core.check_given(name .. "'s forward", forward, 2, ...)
    if not policy and modes[self] == nil then
      core.enter(self, ...)
      return core.leave(forward(self, state_of[self], ...))
    end
    core.check_callable(self)
    if not policy then return run(self, forward_of, ...) end
    return base.as_type(policy.outputs, run(self, forward_of, base.as_type(policy.inputs, ...)))
  end, call)
  local instances = metatable(name, call_own, {forward = forward_of})
  return make_class(name, core.unwatched(function(class, ...)
    local self, state, own_keys = made(...)
    core.make_module(self, class, name, own_keys or keys)
    if state then state_of[self] = state end
    return setmetatable(self, instances)
  end))
end

-- ------------------------------------------------------------------------------------- parameters

-- randn{20, 10} and the like: descriptions of tensors to fill, for a batch or an nn.Parameter. In a
-- batch it may have another type: zeros{20, 10, dtype = "bool"}.
local described = {}

local function keys_of(sizes, what)
  for key in pairs(sizes) do
    if not math.type(key) and key ~= "dtype" and key ~= "fresh" then
      fail("%s knows no '%s'%s", what, key, core.suggestion(key, {"dtype", "fresh"}))
    end
  end
end

-- The type that the sizes name, one of `types`; the default is the first of these.
local function type_among(types, sizes, what)
  local name = rawget(sizes, "dtype")
  if name == nil then return types[1] end
  for _, known in ipairs(types) do
    if name == known then return name end
  end
  fail("%s: its dtype is one of %s, not %s%s", what, table.concat(types, ", "), base.a(name), base.type_instead(name))
end

local RANDOM = {randn = true, rand = true, randint = true}

-- Whether each step draws the input anew; fresh = true says so.
local function is_fresh(sizes, what)
  local fresh = rawget(sizes, "fresh")
  if fresh == nil then return false end
  if not RANDOM[what] then fail("%s{..., fresh = %s}: it is not random", what, tostring(fresh)) end
  return base.boolean(fresh, what .. "'s fresh")
end

-- Inside forward these are tensors: zeros{...} is F.zeros{...}, and randn{...} is F.randn{...}, drawn anew in each step.
local function made_in_forward(what, d)
  if what == "zeros" or what == "ones" then return of.full(d.shape, d.a, d.type) end
  if not RANDOM[what] then fail("%s describes an input of the step: it belongs in the batch", what) end
  return base.drawn_input(d, function(x) return x end)
end

local function describe(what, init, a, b, types)
  return core.counted(what, function(sizes)
    base.expect(sizes, "table", "what " .. what .. " is given, as in " .. what .. "{20, 10},")
    keys_of(sizes, what)
    local shape, name = base.sizes(sizes, what), type_among(types, sizes, what)
    local fresh = is_fresh(sizes, what)
    if core.recording() then return made_in_forward(what, {shape = shape, init = init, a = a, b = b, type = name}) end
    core.parameter(what, shape, init, a, b) -- checks the shape
    local d = base.make("description", {shape = base.sizes(sizes, what)})
    described[d] = {shape = shape, init = init, a = a, b = b, type = name, line = core.line(),
      placed = {}, fresh = fresh}
    return d
  end)
end

local ANY = {"float32", "bfloat16", "int32", "int64", "bool"}
local FLOATING = {"float32", "bfloat16"}

--- # Inputs of a batch
--- randn(sizes): a description of an input, drawn from the normal distribution where no file gives it: `randn{20,
--- 10}`; `dtype =` may name a type. With `fresh = true` no file gives it: each step draws it anew. Within a forward it is a
--- tensor, drawn anew.
plan.randn = describe("randn", "normal", 0.0, 1.0, FLOATING)
--- rand(sizes): likewise, from 0 to 1.
plan.rand  = describe("rand", "uniform", 0.0, 1.0, FLOATING)
--- zeros(sizes): likewise, zeros; within a forward a tensor.
plan.zeros = describe("zeros", "constant", 0.0, 0.0, ANY)
--- ones(sizes): likewise, ones.
plan.ones  = describe("ones", "constant", 1.0, 0.0, ANY)

--- randint(low, high?): `randint(low, high){sizes}`: whole numbers from `low` to `high - 1`; `randint(high){sizes}`
--- from 0.
function plan.randint(low, high)
  if high == nil then low, high = 0, low end
  local most = 1 << 31
  low = base.integer(low, "randint's lowest number", -most, most - 1)
  high = base.integer(high, "randint's end", low + 1, most)
  return describe("randint", "uniform", low + 0.0, high + 0.0, {"int32", "int64", "bool"})
end

-- tokens(words){batch, sequence}: tokens of the text or the file that the program is given, the
-- next so many in every step; tokens(words, 1): each one token further, which is the target of a
-- language model. Their numbers are below `words`. tokens(words, {shift = 1, documents = eos}): a
-- token eos ends a document. x:documents() then knows it, and a target after the end of a document,
-- which is of the next one, becomes -100, which a loss leaves out. longest = n: no document has more
-- tokens than that within a row; a program that reads one ends.
--- tokens(words, shift?): `tokens(words){batch, sequence}`: tokens of a text, the next ones in every step;
--- `tokens(words, 1){...}` each one further, the targets of a language model. The second argument may be a table.
---   shift = 0: each token is so many further
---   documents: the token that ends a document; a target after it becomes -100
---   ends: the name of another input of the batch, of the same shape, which is 1 where a document ends
---   longest: no document has more tokens in a row
local TOKENS_OPTIONS = base.option_names("tokens", {"shift", "documents", "ends", "longest"})

function plan.tokens(words, shift)
  words = base.integer(words, "the number of words that tokens is given", 1, (1 << 31) - 1)
  local eos, ends, longest
  if base.kind(shift) == "table" then
    local options = base.options_of(shift, TOKENS_OPTIONS)
    shift, eos, ends, longest = options.shift, options.documents, options.ends, options.longest
  end
  if ends ~= nil then
    base.expect(ends, "string", "the name of the input that tokens is given as ends")
    if eos ~= nil then fail("tokens: `documents` is the token that ends a document, and `ends` the input that says it: give one of them") end
  end
  shift = base.integer(shift == nil and 0 or shift, "the shift that tokens is given", 0, 1 << 20)
  if eos ~= nil then eos = base.integer(eos, "the token that ends a document", 0, words - 1) end
  if longest ~= nil then
    if eos == nil and ends == nil then fail("longest is of documents: say which token ends one, as in {documents = 2, longest = %s}", longest) end
    longest = base.integer(longest, "the tokens of the longest document", 1, (1 << 31) - 1)
  end
  local make = describe("tokens", "tokens", words + 0.0, shift + 0.0, {"int32"})
  if eos == nil and ends == nil then return make end
  return function(sizes)
    local d = make(sizes)
    if described[d] then described[d].eos, described[d].ends, described[d].longest = eos, ends, longest end
    return d
  end
end

--- present(sizes): `present{batch}`: 1 for each sample, 0 for those that a smaller last batch lacks.
plan.present = describe("present", "present", 1.0, 0.0, {"float32"})

function base.described(d) return described[d] end

-- The kind of initial values and its numbers, for a tensor of this shape.
function base.values_of_start(s, shape)
  if s.of then return s.of(shape) end
  return s.kind, s.a, s.b
end

-- The initial values of a parameter: nn.Parameter{32, 10, init = nn.init.normal(0, 0.02)}.
local starts = {}

local START_NAMES = {constant = "nn.init.constant", uniform = "nn.init.uniform",
  normal = "nn.init.normal"}

local function start(kind, a, b)
  local s = base.make("initializer", base.named(START_NAMES[kind]))
  starts[s] = {kind = kind, a = a, b = b}
  return s
end

-- One whose kind and numbers follow from the shape: of(shape) gives them.
function base.start_of_shape(name, of)
  local s = base.make("initializer", base.named(name))
  starts[s] = {of = of}
  return s
end

local function finite(v, what)
  if type(v) ~= "number" or v - v ~= 0 then
    fail("%s must be a finite number, not %s", what, math.type(v) and tostring(v) or base.a(v))
  end
  return v + 0.0
end

--- # Modules
--- nn.init.constant(value): initial values: one number.
--- nn.init.uniform(low, high): initial values between two numbers.
--- nn.init.normal(mean, deviation): initial values of a normal distribution.
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
base.finite = finite

local distributed = {}       -- parameters that distribute placed: {tensor =, placed =, line =} each

-- A parameter with this description, and with the layout that distribute gave it.
local function parameter_as(d)
  if d.type ~= "float32" then fail("nn.Parameter must be float32, not %s", d.type) end
  local tensor = core.parameter("nn.Parameter", d.shape, d.init, d.a, d.b)
  local p = {tensor = tensor, placed = {}, line = core.line()}
  for dim, placement in pairs(d.placed) do p.placed[dim] = placement end
  distributed[#distributed + 1] = p
  return tensor
end

-- Called when the model is part of the graph.
function base.place_parameters()
  for _, p in ipairs(distributed) do
    core.place_parameter(p.tensor, base.placed_in_graph(p.placed), p.line)
  end
end

--- nn.Parameter(t): `nn.Parameter{16, 8, init = nn.init.normal(0, 0.02)}`, or of a description:
--- `nn.Parameter(zeros{16})`, `nn.Parameter(distribute(zeros{16, 8}, mesh.tp, Shard(0)))`.
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
  local sizes = base.sizes(t, "nn.Parameter")
  return core.parameter("nn.Parameter", sizes, base.values_of_start(s, sizes))
end

-- ---------------------------------------------------------------------------------------- modules

local LARGEST = 1 << 40

-- The shape, and the initial values that an argument `init` gives, as core.parameter takes them; else the default.
local function beginning(shape, init, who, kind, a, b)
  if init == nil then return shape, kind, a, b end
  return shape, base.values_of_start(starts[base.expect(init, "initializer",
    who .. "'s init, such as nn.init.normal(0, 0.02),")], shape)
end

local function check_input(x, name)
  if not base.is_tensor(x) then base.expect(x, "tensor", "the input of " .. name) end
end

local function checked_flag(v, what)
  return v == nil or base.boolean(v, what)
end

local function only_float32(dtype, who)
  if dtype ~= nil and dtype ~= "float32" then
    fail("%s's dtype is float32: parameters are; mixed_precision computes in another type", who)
  end
end

--- nn.Linear(in_features, out_features, bias = true, dtype?, init?): `F.linear`; `init` is the weight's.
nn.Linear = own_class("Linear", {"in_features", "out_features", "weight", "bias"},
  function(in_features, out_features, bias, device, dtype, init)
    local inputs = base.integer(in_features, "Linear's number of inputs", 1, LARGEST)
    local outputs = base.integer(out_features, "Linear's number of outputs", 1, LARGEST)
    only_float32(dtype, "Linear")
    local bound = 1 / math.sqrt(inputs)
    return {
      in_features = inputs, out_features = outputs,
      weight = core.parameter("Linear", beginning({outputs, inputs}, init, "Linear", "uniform", -bound, bound)),
      bias = checked_flag(bias, "Linear's bias")
        and core.parameter("Linear", {outputs}, "uniform", -bound, bound) or nil,
    }
  end,
  function(self, adapter, x)
    check_input(x, "Linear")
    if adapter then return adapter(self, x) end
    base.float8 = base.float8_of[self]
    local y = of.linear(x, self.weight, self.bias)
    base.float8 = nil
    return y
  end)

-- Whether the forward of this module is another one than its class has.
function base.has_adapter(module) return state_of[module] ~= nil end

-- From now on the forward of the Linear, Conv1D or Embedding is adapter(module, x).
function base.set_adapter(module, adapter)
  if base.float8_of[module] then
    fail("the %s of line %d is computed in float8, and takes no adapter: lora comes before float8", base.class_name(module),
      base.line_of(module))
  end
  if base.kind(state_of[module]) == "table" then fail("an Embedding with padding_idx takes no adapter") end
  state_of[module] = adapter
end

--- nn.Conv1D(nf, nx, init?): transformers' layer of GPT-2, with the weight `[nx, nf]`.
nn.Conv1D = own_class("Conv1D", {"nf", "nx", "weight", "bias"},
  function(nf, nx, init)
    local outputs = base.integer(nf, "Conv1D's number of outputs", 1, LARGEST)
    local inputs = base.integer(nx, "Conv1D's number of inputs", 1, LARGEST)
    return {
      nf = outputs, nx = inputs,
      weight = core.parameter("Conv1D", beginning({inputs, outputs}, init, "Conv1D", "normal", 0.0, 0.02)),
      bias = core.parameter("Conv1D", {outputs}, "constant", 0.0, 0.0),
    }
  end,
  function(self, adapter, x)
    check_input(x, "Conv1D")
    local from, of = core.shape(x), core.shape(self.weight)
    if #from < 1 or from[#from] ~= of[1] then
      base.misfit("Conv1D: an input of shape %s does not fit a weight of shape %s, which takes %d "
        .. "numbers in the input's last dimension", base.shape_text(from), base.shape_text(of), of[1])
    end
    if adapter then return adapter(self, x) end
    return base.project(x, self.weight, self.bias, true)
  end)

--- nn.Embedding(num_embeddings, embedding_dim, padding_idx?, norm_type = 2, dtype?, init?): `F.embedding`. Row `padding_idx`
--- begins as zeros and gets no gradient; `norm_type` changes nothing.
nn.Embedding = own_class("Embedding", {"num_embeddings", "embedding_dim", "weight"},
  function(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse,
      _weight, _freeze, device, dtype, init)
    only_float32(dtype, "Embedding")
    local rows = base.integer(num_embeddings, "Embedding's number of rows", 1, LARGEST)
    local size = base.integer(embedding_dim, "Embedding's size", 1, LARGEST)
    local shape, kind, a, b = beginning({rows, size}, init, "Embedding", "normal", 0.0, 1.0)
    if padding_idx ~= nil then
      padding_idx = base.integer(padding_idx, "Embedding's padding_idx", -rows, rows - 1) % rows
      if kind ~= "normal" or a ~= 0 then
        fail("Embedding: with padding_idx its init is a normal distribution around 0, as nn.init.normal(0, 0.02)")
      end
      kind, a = "normal_rows", padding_idx + 0.0
    end
    return {
      num_embeddings = rows, embedding_dim = size, weight = core.parameter("Embedding", shape, kind, a, b),
    }, padding_idx and {padding_idx = padding_idx}
  end,
  function(self, kept, ids)
    check_input(ids, "Embedding")
    if type(kept) == "function" then return kept(self, ids) end -- an adapter
    return of.embedding(ids, self.weight, kept and kept.padding_idx)
  end)

-- For the styles, whatever a plan does to nn.
base.Linear, base.Conv1D, base.Embedding = nn.Linear, nn.Conv1D, nn.Embedding

-- Sizes of the last dimensions: a number, or a list of them.
local function normalized_sizes(v, who)
  if base.kind(v) ~= "table" then v = {v} end
  local sizes, n = {}, base.length(v, "what " .. who .. " is given")
  if n == 0 then fail("%s takes the sizes of the last dimensions", who) end
  for i = 1, n do sizes[i] = base.integer(rawget(v, i), who .. "'s size", 1, LARGEST) end
  return sizes
end

local function epsilon(eps, who, otherwise)
  if eps == nil then return otherwise end
  return base.number(eps, who .. "'s eps", 0, math.huge)
end

local function filled(who, sizes, value)
  return core.parameter(who, sizes, "constant", value, 0.0)
end

--- nn.LayerNorm(normalized_shape, eps = 1e-5, elementwise_affine = true, bias = true, dtype?): `F.layer_norm`.
nn.LayerNorm = own_class("LayerNorm", {"weight", "bias"},
  function(normalized_shape, eps, elementwise_affine, bias, device, dtype)
    local sizes = normalized_sizes(normalized_shape, "LayerNorm")
    only_float32(dtype, "LayerNorm")
    local self = {}
    if checked_flag(elementwise_affine, "LayerNorm's elementwise_affine") then
      self.weight = filled("LayerNorm", sizes, 1.0)
      if checked_flag(bias, "LayerNorm's bias") then self.bias = filled("LayerNorm", sizes, 0.0) end
    end
    return self, {sizes = sizes, eps = epsilon(eps, "LayerNorm", 1e-5)}
  end,
  function(self, kept, x)
    check_input(x, "LayerNorm")
    return of.layer_norm(x, kept.sizes, self.weight, self.bias, kept.eps)
  end)

--- nn.RMSNorm(normalized_shape, eps?, elementwise_affine = true, dtype?): `F.rms_norm`.
nn.RMSNorm = own_class("RMSNorm", {"weight"},
  function(normalized_shape, eps, elementwise_affine, device, dtype)
    local sizes = normalized_sizes(normalized_shape, "RMSNorm")
    only_float32(dtype, "RMSNorm")
    local self = {}
    if checked_flag(elementwise_affine, "RMSNorm's elementwise_affine") then
      self.weight = filled("RMSNorm", sizes, 1.0)
    end
    return self, {sizes = sizes, eps = epsilon(eps, "RMSNorm", nil)}
  end,
  function(self, kept, x)
    check_input(x, "RMSNorm")
    return of.rms_norm(x, kept.sizes, self.weight, kept.eps)
  end)

-- Modules without parameters, each a call of one function with the module's arguments: `new`
-- returns a table of attributes and those arguments.
local function plain(class_name, name, new)
  nn[class_name] = own_class(class_name, {}, new,
    function(_, given, x)
      check_input(x, class_name)
      return of[name](x, table.unpack(given, 1, given.n))
    end)
end

local function nothing() return {}, {n = 0} end
local function in_place(inplace) return {}, {n = 0} end

--- nn.ReLU(): `F.relu`.
plain("ReLU", "relu", in_place)
--- nn.SiLU(): `F.silu`.
plain("SiLU", "silu", in_place)
--- nn.Tanh(): `F.tanh`.
plain("Tanh", "tanh", nothing)
--- nn.Sigmoid(): `F.sigmoid`.
plain("Sigmoid", "sigmoid", nothing)
--- nn.GELU(approximate = "none"): `F.gelu`.
plain("GELU", "gelu", function(approximate) return {}, table.pack(approximate) end)
--- nn.ReLU6(): `F.relu6`.
plain("ReLU6", "relu6", in_place)
--- nn.SELU(): `F.selu`.
plain("SELU", "selu", in_place)
--- nn.Mish(): `F.mish`.
plain("Mish", "mish", in_place)
--- nn.Hardswish(): `F.hardswish`.
plain("Hardswish", "hardswish", in_place)
--- nn.Hardsigmoid(): `F.hardsigmoid`.
plain("Hardsigmoid", "hardsigmoid", in_place)
--- nn.LogSigmoid(): `F.logsigmoid`.
plain("LogSigmoid", "logsigmoid", nothing)
--- nn.Softsign(): `F.softsign`.
plain("Softsign", "softsign", nothing)
--- nn.Tanhshrink(): `F.tanhshrink`.
plain("Tanhshrink", "tanhshrink", nothing)
--- nn.ELU(alpha = 1): `F.elu`.
plain("ELU", "elu", function(alpha, inplace) return {}, table.pack(alpha) end)
--- nn.CELU(alpha = 1): `F.celu`.
plain("CELU", "celu", function(alpha, inplace) return {}, table.pack(alpha) end)
--- nn.LeakyReLU(negative_slope = 0.01): `F.leaky_relu`.
plain("LeakyReLU", "leaky_relu", function(negative_slope, inplace) return {}, table.pack(negative_slope) end)
--- nn.Softplus(beta = 1, threshold = 20): `F.softplus`.
plain("Softplus", "softplus", function(beta, threshold) return {}, table.pack(beta, threshold) end)
--- nn.GLU(dim = -1): `F.glu`.
plain("GLU", "glu", function(dim) return {}, table.pack(dim) end)
--- nn.Hardtanh(min_val = -1, max_val = 1): `F.hardtanh`.
plain("Hardtanh", "hardtanh", function(min_val, max_val, inplace, min_value, max_value) return {}, table.pack(min_val, max_val) end)
--- nn.Softmax(dim): `F.softmax`.
--- nn.LogSoftmax(dim): `F.log_softmax`.
for class_name, name in pairs{Softmax = "softmax", LogSoftmax = "log_softmax"} do
  plain(class_name, name, function(dim)
    if dim == nil then
      fail("%s: say over which dimension it goes: nn.%s(-1), the last", class_name, class_name)
    end
    return {}, table.pack(dim)
  end)
end
-- No dropout if the plan only computes.
--- nn.Dropout(p = 0.5): `F.dropout`.
plain("Dropout", "dropout", function(p, inplace) return {}, table.pack(p) end)

--- nn.PReLU(num_parameters = 1, init = 0.25, dtype?): `F.prelu`.
nn.PReLU = own_class("PReLU", {"weight"},
  function(num_parameters, init, device, dtype)
    only_float32(dtype, "PReLU")
    local n = base.integer(num_parameters == nil and 1 or num_parameters, "PReLU's number of slopes", 1, LARGEST)
    return {weight = filled("PReLU", {n}, init == nil and 0.25 or base.number(init, "PReLU's init", -1e30, 1e30))}
  end,
  function(self, _, x)
    check_input(x, "PReLU")
    return of.prelu(x, self.weight)
  end)

--- nn.Flatten(start_dim = 1, end_dim = -1): `F.flatten`.
nn.Flatten = own_class("Flatten", {},
  function(start_dim, end_dim) return {}, {first = start_dim == nil and 1 or start_dim, last = end_dim} end,
  function(_, dims, x)
    check_input(x, "Flatten")
    return of.flatten(x, dims.first, dims.last)
  end)

--- nn.Identity(...): gives what it is given.
nn.Identity = own_class("Identity", {}, function(...) return {} end,
  function(_, _, ...) return ... end)

-- With these nn_layers.lua makes its classes.
base.own_class, base.plain_class, base.filled_parameter = own_class, plain, filled
function base.own_state(module) return state_of[module] end
base.checked_flag, base.only_float32, base.check_input = checked_flag, only_float32, check_input
base.epsilon_of, base.beginning = epsilon, beginning

local function keep_all(self, what, members)
  for i = 1, #members do
    self[i] = base.expect(members[i], "module", string.format("%s's member %d", what, i))
  end
end

--- nn.Sequential(...): modules one after the other, called "0", "1", ...
nn.Sequential = nn.module("Sequential", function(self, ...)
  keep_all(self, "Sequential", {...})
  function self:forward(x)
    for i = 1, #self do x = self[i](x) end
    return x
  end
end)

--- nn.ModuleList(members?): a list of modules, called "0", "1", ...: `list[1]`, `#list`, `ipairs(list)`.
nn.ModuleList = nn.module("ModuleList", function(self, members)
  members = members or {}
  base.expect(members, "table", "what nn.ModuleList is given")
  base.length(members, "what nn.ModuleList is given")
  keep_all(self, "ModuleList", members)
  function self:forward() fail("a ModuleList is not called: call its modules") end
end)
base.ModuleList, base.Sequential = nn.ModuleList, nn.Sequential

plan.nn, plan.F = nn, F

-- ------------------------------------------------------------------------- the tree of a model

-- children(module): a list of a name, then the module of this name, and so on.
base.children, base.index = core.children, core.index
base.line_of, base.class, base.class_name = core.line_of, core.class_of, core.class_name

-- The model becomes part of the graph: its modules and its parameters, in PyTorch's order.
base.take_up = core.unwatched(function(model)
  base.model = model
  core.take_up(model, base.policies, base.calls_of_modules, base.unit_of)
end)
