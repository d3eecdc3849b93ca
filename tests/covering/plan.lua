-- A plan with the features that -D names (features.txt): tests/scripts/programs/covering.sh combines them. -D one=1: the same for one rank, which
-- takes its batch at once.
local names = {"layer", "norm", "act", "ops", "drop", "tied", "loss", "style", "tp", "data", "context", "ep", "stages", "parts",
  "accumulate", "batch", "checkpoint", "planner", "buckets", "async", "optimizer", "groups", "frozen", "lora", "ema", "clip",
  "precision", "files", "validate", "metrics", "kind", "transport"}
local f = {}
for _, name in ipairs(names) do f[name] = args[name] end
local one = args.one
local function is(name, value) return f[name] == value end
local WORDS, WIDTH, HIDDEN, LENGTH, LAYERS = 11, 12, 10, 8, 4

-- ------------------------------------------------------------------------------------- the mesh

local sizes = {dp2 = {dp = 2}, dp3 = {dp = 3}, fsdp2 = {fs = 2}, fsdp3 = {fs = 3}, units3 = {fs = 3}, hybrid = {dp = 2, fs = 2},
  zero1 = {dp = 2}, zero2 = {dp = 3}}
local cut_batch = sizes[f.data] or {}
local data = one and {} or cut_batch
local staged = f.stages and f.stages ~= "none" and f.stages
local has_four = is("stages", "interleaved") or is("stages", "zbv") or is("stages", "zero_bubble") or is("stages", "dualpipe")

-- The samples of a batch, in equal parts or not; one rank has as many. Each rank of a pipeline has a sample for each micro-batch.
local BATCH, least = f.batch or 12, 0 -- least: of the rank with fewest
local many = (cut_batch.dp or 1) * (cut_batch.fs or 1) * (f.ep or 1)
local function fewest() return math.max(0, BATCH - (BATCH + many - 1) // many * (many - 1)) end
local microbatches = staged and math.max((f.parts or 1) + 1, has_four and 4 or 2) or f.parts or 1
if staged and fewest() < microbatches then
  BATCH = is("batch", 7) and many > 1 and (microbatches + 1) * many - 1 or microbatches * many
end
least = one and BATCH or fewest()
if one then staged = false end
local cut = not one and f.context and f.context ~= "none" and f.context
local ep, tp = not one and f.ep == 2 and 2 or 1, one and 1 or f.tp or 1
local size = {pp = staged and 2 or 1, dp = data.dp or 1, fs = data.fs or 1, ep = ep, cp = cut and 2 or 1, tp = tp}
local dims = {}
for _, name in ipairs{"pp", "dp", "fs", "ep", "cp", "tp"} do
  if size[name] > 1 then dims[#dims + 1] = {name, size[name]} end
end
local mesh = device_mesh(#dims > 0 and dims or {{"dp", 1}})

-- ------------------------------------------------------------------------------------- the model

local act = F[f.act or "gelu"]

local function Norm()
  if is("norm", "layer") then return nn.LayerNorm(WIDTH, {eps = 0.1}) end
  if is("norm", "group") then return nn.GroupNorm(3, WIDTH, {eps = 0.1}) end
  return nn.RMSNorm(WIDTH, {eps = 0.1})
end
local function normed(norm, x)
  if is("norm", "none") then return x end
  if is("norm", "group") then return norm(x:transpose(1, 2)):transpose(1, 2) end
  return norm(x)
end

-- Operators of many kinds, on [batch, sequence, width].
local operators = {
  none = function(x) return x end,
  cumsum = function(x) return x:cumsum(1) * 0.3 end,
  softmax = function(x) return F.softmax(x, -1) * 4 end,
  topk = function(x)
    local best = F.topk(x, 3, -1)
    return x + best:sum(-1, true) * 0.1
  end,
  roll = function(x) return x + x:roll(1, 2) * 0.5 end,
  einsum = function(x) return F.einsum("bsd,bsd->bs", x, x):unsqueeze(-1) * 0.1 + x end,
  pieces = function(x)
    local a, b = x:narrow(-1, 0, 5), x:narrow(-1, 5, WIDTH - 5)
    return F.cat({b, a}, -1) + x
  end,
  masks = function(x) return F.where(x:gt(0), x * 1.5, x * 0.5) end,
  maximum = function(x) return x - x:amax(-1, true) * 0.25 + (x - 0.5):square():mean(-1, true) end,
}
local op = operators[f.ops or "none"]
local drop = is("drop", "dropout") and 0.2 or 0

local Feed = nn.module("Feed", function(self)
  self.norm, self.up, self.down = Norm(), nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
  function self:forward(x) return x + self.down(F.dropout(act(self.up(op(normed(self.norm, x)))), drop)) end
end)

local function Attention(keys)
  local size = 3
  return nn.module("Attention", function(self)
    local none = {bias = false} -- the gradient of the keys' bias would be 0
    self.norm, self.q, self.k = Norm(), nn.Linear(WIDTH, 4 * size), nn.Linear(WIDTH, keys * size, none)
    self.v, self.o = nn.Linear(WIDTH, keys * size), nn.Linear(4 * size, WIDTH)
    function self:forward(x)
      local h = op(normed(self.norm, x))
      local function heads(y, n) return y:unflatten(-1, n, size):transpose(1, 2) end
      local y = F.scaled_dot_product_attention(heads(self.q(h), 4), heads(self.k(h), keys), heads(self.v(h), keys),
        {is_causal = true, enable_gqa = keys < 4})
      return x + F.dropout(self.o(y:transpose(1, 2):flatten(2)), drop)
    end
  end)
end

local Experts = nn.module("Experts", function(self)
  self.norm, self.moe = Norm(), nn.MoE(WIDTH, {experts = 4, top_k = 2, hidden = 6})
  function self:forward(x) return x + F.dropout((self.moe(op(normed(self.norm, x)))), drop) end
end)

local Recurrent = nn.module("Recurrent", function(self)
  self.norm, self.rnn = Norm(), nn.GRU(WIDTH, WIDTH, {batch_first = true})
  function self:forward(x) return x + F.dropout((self.rnn(op(normed(self.norm, x)))), drop) end
end)

local Convolution = nn.module("Convolution", function(self)
  self.norm, self.conv, self.down = Norm(), nn.Conv1d(WIDTH, HIDDEN, 3), nn.Linear(HIDDEN, WIDTH)
  function self:forward(x)
    local h = op(normed(self.norm, x)):transpose(1, 2):pad{2, 0}
    return x + self.down(F.dropout(act(self.conv(h):transpose(1, 2)), drop))
  end
end)

local kinds = {mlp = {Feed}, attention = {Attention(4)}, grouped = {Attention(2)}, experts = {Attention(4), Experts},
  recurrent = {Recurrent}, convolution = {Convolution}, unlike = {Feed, Attention(4), Feed, Convolution}}
local layers = kinds[f.layer or "mlp"]
local tied = is("tied", "yes")

local Model = nn.module("Model", function(self)
  self.words = nn.Embedding(WORDS, WIDTH)
  local list = {}
  for i = 1, LAYERS do list[i] = layers[(i - 1) % #layers + 1]() end
  self.layers = nn.ModuleList(list)
  self.norm = Norm()
  if not tied then self.output = nn.Linear(WIDTH, WORDS) end
  function self:forward(ids)
    local x = self.words(ids)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    x = normed(self.norm, x)
    if tied then return F.linear(x, self.words.weight) end
    return self.output(x)
  end
end)
local model = Model()

-- --------------------------------------------------------------------------------- where it is cut

if is("lora", "all") then
  lora(model, {rank = 3, alpha = 6, match = tied and {"words"} or {"output"}})
  for _, layer in ipairs(model.layers) do
    for _, name in ipairs{"up", "down", "q", "v", "o"} do
      if layer[name] then lora(layer, {rank = 3, alpha = 6, match = {name}}) end
    end
  end
  if not is("norm", "none") then unfreeze(model, {"norm", "layers.*.norm"}) end
end
if is("frozen", "layer") then freeze(model.layers[2]) end
if is("frozen", "embedding") and not tied then freeze(model.words) end

if tp > 1 then
  local way = f.style or "plain"
  local cuts, styles = {up = Colwise(), down = Rowwise(), q = Colwise(), k = Colwise(), v = Colwise(), o = Rowwise()}, {}
  if way == "sequence" then
    local inp, out = {input_layouts = Shard(1)}, {output_layouts = Shard(1)}
    cuts = {up = Colwise(inp), q = Colwise(inp), k = Colwise(inp), v = Colwise(inp), down = Rowwise(out), o = Rowwise(out)}
    if not is("norm", "none") and not is("norm", "group") then cuts.norm = SequenceParallel() end
    styles.words = Rowwise(out)
  elseif way == "replicated" then
    local whole = {output_layouts = Replicate()}
    cuts = {up = Colwise(whole), q = Colwise(whole), k = Colwise(whole), v = Colwise(whole)}
  elseif way == "vocabulary" then
    styles.words, styles.output = Rowwise(), Colwise{output_layouts = Shard(-1)}
  elseif way == "columns" then
    cuts = {up = Colwise(), down = Colwise{output_layouts = Replicate()}, q = Rowwise{input_layouts = Replicate()}}
  end
  for i, layer in ipairs(model.layers) do
    for name, style in pairs(cuts) do
      if layer[name] then styles[string.format("layers.%d.%s", i - 1, name)] = style end
    end
    if layer.moe then styles[string.format("layers.%d.moe.experts", i - 1)] = ExpertTensorParallel() end
  end
  parallelize(model, mesh.tp, styles, f.async and {async_tp = f.async} or nil)
end
local batch = {input = randint(WORDS){BATCH, LENGTH, dtype = "int64"}}
if is("loss", "mse") then
  batch.target = randn{BATCH, LENGTH, WORDS}
  if is("files", "smaller") then batch.here = present{BATCH} end
else
  batch.target = randint(is("loss", "ignored") and -100 or 0, WORDS){BATCH, LENGTH, dtype = "int64"}
end
for _, dim in ipairs{"dp", "fs", "ep"} do
  if size[dim] > 1 then distribute(batch, mesh[dim], Shard(0)) end
end
if ep > 1 and f.layer == "experts" then parallelize(model, mesh.ep, {["layers.*.moe.experts"] = ExpertParallel()}) end
if cut then
  local method = cut == "headtail" and "ring" or cut
  context_parallel(model, mesh.cp, {method = method, balance = cut == "headtail" and "headtail" or nil})
  distribute({input = batch.input, target = batch.target}, mesh.cp, Shard(1))
end
local policy = is("precision", "bf16") and {param_dtype = "bfloat16", reduce_dtype = "float32"} or nil
if data.fs then
  local over = data.dp and mesh{"dp", "fs"} or mesh.fs
  if is("data", "units3") then
    for _, layer in ipairs(model.layers) do fully_shard(layer, over) end
  end
  fully_shard(model, over)
elseif is("data", "zero1") and data.dp then
  replicate(model, mesh.dp, {zero = 1})
elseif is("data", "zero2") and data.dp then
  replicate(model, mesh.dp, {zero = 2})
end
if policy then mixed_precision(model, policy) end

local schedules = {interleaved = "interleaved_1f1b", zbv = "zbv_zero_bubble", zero_bubble = "interleaved_zero_bubble",
  dualpipe = "dualpipe_v"}
if staged then
  pipeline(model, mesh.pp, {schedule = schedules[staged] or staged, stages = has_four and 4 or 2, microbatches = microbatches})
end

-- --------------------------------------------------------------------------------------- training

local Own = optimizer{
  name = "Own", defaults = {lr = 0.01}, state = {"sum"},
  update = function(p, g, state, o)
    local sum = 0.8 * state.sum + g
    return p - o.lr * sum, {sum = sum}
  end,
}
-- Without a norm a step is small: a loss that grows tells nothing.
local rate = is("norm", "none") and 0.1 or 1
local optimizers = {sgd = SGD{lr = rate * (is("loss", "mse") and 0.005 or 0.05)}, momentum = SGD{lr = rate * 0.01, momentum = 0.9, nesterov = true},
  adamw = AdamW{lr = rate * 0.01, eps = 1e-2}, adagrad = Adagrad{lr = rate * 0.02, eps = 1e-2}, rmsprop = RMSprop{lr = rate * 0.01, eps = 1e-2},
  lion = Lion{lr = rate * 1e-3}, adafactor = Adafactor{lr = rate * 1e-2}, lamb = LAMB{lr = rate * 1e-2, eps = 1e-2}, muon = SGD{lr = rate * 0.1},
  own = Own{}}
local groups
local has_words = not is("frozen", "embedding") and not is("lora", "all")
if is("optimizer", "muon") and has_words then groups = {{match = "words.weight", optimizer = Muon{lr = rate * 0.02, dtype = "float32"}}} end
if is("groups", "two") then
  groups = groups or {}
  if #groups == 0 and has_words then groups[1] = {match = "words.*", lr = 0.03} end
  if not is("norm", "none") then groups[#groups + 1] = {match = "**norm.*", optimizer = SGD{lr = 0.02}} end
end

local function loss(output, b)
  if is("precision", "bf16") then output = output:to("float32") end
  if is("loss", "mse") then
    local each = (output - b.target):square():mean(-1)
    if is("files", "smaller") then return (each * b.here:unsqueeze(-1)):sum() / (b.here:sum() * LENGTH) end
    return each:mean()
  end
  local target = b.target
  if is("loss", "computed") then target = F.where(b.input:lt(4), -100, target) end
  return F.cross_entropy(output, target, {dim = -1, label_smoothing = is("loss", "smoothed") and 0.1 or 0})
end

local last
if f.files and f.files ~= "random" then last = f.files ~= "smaller" end
local accumulate = f.accumulate or 1
return train{
  model = model, batch = batch, loss = loss,
  optimizer = optimizers[f.optimizer or "sgd"], groups = groups,
  metrics = is("metrics", "own") and function(output, b)
    return {spread = output:to("float32"):square():mean(), most = output:to("float32"):square():mean({0, 1}):amax()}
  end or nil,
  clip = is("clip", "norm") and 0.5 or nil, clip_value = is("clip", "value") and 0.01 or nil, grad_norm = true,
  ema = is("ema", "yes") and 0.9 or nil, steps = 3, seed = 5,
  accumulate = accumulate ~= 1 and 2 or nil, accumulate_mean = accumulate == "means" and "batches" or nil,
  reduce_each_batch = not one and accumulate == "each",
  microbatches = not one and not staged and math.min(microbatches, least) > 1 and math.min(microbatches, least) or nil,
  checkpoint = not one and is("checkpoint", "layer") and "layer" or nil,
  planner = not one and f.planner or nil,
  bucketing = not one and f.buckets or nil,
  drop_last = last, validate = is("validate", "yes") and {} or nil,
}
