-- A small model and a pipeline, both made at random: for tests/scripts/programs/random_pipelines.sh.
--   -D model=17            the model, for one rank
--   -D model=17 -D trial=3 the same in stages: how many, which schedule, how many micro-batches, and what else
-- Sizes are small and odd. Values stay near one, so that little cancels and a wrong number shows.

-- ---------------------------------------------------------------------------------------- chance

-- A generator (splitmix64): below(n) is one of 0 ... n - 1, of(list) one of the list.
local function chance(seed)
  local c, state = {}, seed
  function c.below(n)
    state = state + 0x9e3779b97f4a7c15
    local z = (state ~ (state >> 30)) * 0xbf58476d1ce4e5b9
    z = (z ~ (z >> 27)) * 0x94d049bb133111eb
    return ((z ~ (z >> 31)) >> 1) % n
  end
  function c.of(list) return list[c.below(#list) + 1] end
  function c.one_in(n) return c.below(n) == 0 end
  return c
end

local number = assert(args.model, "say which: -D model=1")
local of_model = chance(number)

-- ------------------------------------------------------------------------------------- the model

local BATCH = 24
local WIDTH, HIDDEN, LENGTH = of_model.of{4, 8, 12}, of_model.of{6, 10, 16}, of_model.of{3, 4, 5}
local WORDS, LAYERS = of_model.of{7, 11, 16}, 3 + of_model.below(7)
local HEADS = 2
local tied, has_places = of_model.one_in(3), of_model.one_in(2)
local ignored, penalty = of_model.one_in(3), of_model.one_in(3)
local drops = of_model.one_in(4) and 0.2 or 0
local half = of_model.one_in(8) -- computes in bfloat16
local skips = of_model.one_in(5) -- the last layer reads what the embedding has made
local norm_class = of_model.of{nn.LayerNorm, nn.RMSNorm}
local function Norm(width) return norm_class(width, {eps = 0.1}) end -- a small one lets rounding errors grow
local kinds = of_model.of{{"Feed"}, {"Gated"}, {"Attention"}, {"Feed", "Attention"}, {"Attention", "Gated", "Gated"}}
local has_bias = of_model.one_in(2)
local bias = {bias = has_bias}

local function heads(x) return x:unflatten(-1, HEADS, WIDTH // HEADS):transpose(1, 2) end

local Feed = nn.module("Feed", function(self)
  self.norm, self.up, self.down = Norm(WIDTH), nn.Linear(WIDTH, HIDDEN, bias), nn.Linear(HIDDEN, WIDTH, bias)
  function self:forward(x) return x + self.down(F.dropout(F.gelu(self.up(self.norm(x))), drops)) end
end)

local Gated = nn.module("Gated", function(self)
  self.norm, self.up, self.down = Norm(WIDTH), nn.Linear(WIDTH, HIDDEN, bias), nn.Linear(HIDDEN, WIDTH, bias)
  self.gate = nn.Linear(WIDTH, HIDDEN, bias)
  function self:forward(x)
    local y = self.norm(x)
    return x + self.down(F.silu(self.gate(y)) * self.up(y))
  end
end)

local Attention = nn.module("Attention", function(self)
  self.norm, self.o = Norm(WIDTH), nn.Linear(WIDTH, WIDTH, bias)
  self.q, self.v = nn.Linear(WIDTH, WIDTH, bias), nn.Linear(WIDTH, WIDTH, bias)
  self.k = nn.Linear(WIDTH, WIDTH, {bias = false}) -- the gradient of its bias would be 0
  function self:forward(x)
    local y = self.norm(x)
    y = F.scaled_dot_product_attention(heads(self.q(y)), heads(self.k(y)), heads(self.v(y)), {causal = true})
    return x + self.o(y:transpose(1, 2):flatten(2))
  end
end)

local classes = {Feed = Feed, Gated = Gated, Attention = Attention}

local Model = nn.module("Model", function(self)
  self.words = nn.Embedding(WORDS, WIDTH)
  if has_places then self.places = nn.Embedding(LENGTH, WIDTH) end
  local layers = {}
  for i = 1, LAYERS do layers[i] = classes[kinds[(i - 1) % #kinds + 1]]() end
  self.layers = nn.ModuleList(layers)
  self.norm = Norm(WIDTH)
  if not tied then self.output = nn.Linear(WIDTH, WORDS, bias) end
  function self:forward(ids)
    local x = self.words(ids)
    if has_places then x = x + self.places(F.arange(LENGTH)) end
    local first = x
    for i, layer in ipairs(self.layers) do
      if skips and i == #self.layers then x = x + first * 0.5 end
      x = layer(x)
    end
    x = self.norm(x)
    if tied then return F.linear(x, self.words.weight) end
    return self.output(x)
  end
end)

-- ---------------------------------------------------------------------------------- the pipeline

local SCHEDULES = {"gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "interleaved_zero_bubble", "zbv_zero_bubble",
  "dualpipe_v"}

-- Whether the schedule takes so many micro-batches.
local function fits(t, n)
  local rounds = math.max(1, n // t.pp)
  if t.schedule == "1f1b" then return n >= t.pp end
  if t.schedule == "dualpipe_v" then return n >= 2 * t.pp end
  if t.schedule:find("interleaved") then return n % rounds == 0 end
  return true
end

-- A trial: of 16 ranks at most.
local function any_trial(c)
  local t = {schedule = c.of(SCHEDULES), tp = 1, dp = 1, each = 1}
  if t.schedule == "zbv_zero_bubble" or t.schedule == "dualpipe_v" then
    t.each = 2
  elseif t.schedule == "looped_bfs" or t.schedule:find("interleaved") then
    t.each = 1 + c.below(3)
  end
  while t.each > 1 and 2 * t.each > LAYERS do
    if t.schedule:find("_v") or t.schedule:find("zbv") then t.schedule = "gpipe" end
    t.each = 1
  end
  t.pp = 2 + c.below(math.min(4, LAYERS // t.each) - 1)
  if c.one_in(3) then t.tp = 2 end
  if c.one_in(3) then t.dp = t.pp * t.tp < 8 and c.of{2, 3} or 2 end
  local counts = {}
  for n = 1, BATCH // t.dp do
    if BATCH // t.dp % n == 0 and fits(t, n) then counts[#counts + 1] = n end
  end
  t.microbatches = c.of(counts)
  t.sharded = t.dp > 1 and c.one_in(2)
  t.checkpoint = c.one_in(4) and "layer" or nil
  if c.one_in(3) then -- cut where chance says
    local begins, stages = {}, t.pp * t.each
    for i = 2, LAYERS do begins[#begins + 1] = i end
    while #begins > stages - 1 do table.remove(begins, 1 + c.below(#begins)) end
    for i, layer in ipairs(begins) do begins[i] = "layers." .. layer - 1 end
    t.split = begins
  end
  return t
end

local t = args.trial and any_trial(chance(number * 1000 + args.trial)) or {pp = 1, dp = 1, tp = 1}
local mesh = device_mesh{ {"pp", t.pp}, {"dp", t.dp}, {"tp", t.tp} }
local STYLES = {
  Feed = {up = Colwise(), down = Rowwise()},
  Gated = {up = Colwise(), gate = Colwise(), down = Rowwise()},
  Attention = {q = Colwise(), k = Colwise(), v = Colwise(), o = Rowwise()},
}
local styles = {}
for i = 1, LAYERS do styles["layers." .. i - 1] = STYLES[kinds[(i - 1) % #kinds + 1]] end

local model = parallelize(Model(), mesh.tp, styles)
if t.pp > 1 then
  pipeline(model, mesh.pp, {schedule = t.schedule, stages = t.pp * t.each, microbatches = t.microbatches,
    split = t.split})
end
if t.sharded then
  for _, layer in ipairs(model.layers) do fully_shard(layer, mesh.dp) end
  fully_shard(model, mesh.dp)
end
if half then mixed_precision(model, {param_dtype = "bfloat16", reduce_dtype = "float32"}) end

local optimizers = {SGD{lr = 0.1}, SGD{lr = 0.05, momentum = 0.9}, AdamW{lr = 0.01, eps = 1e-2},
  Muon{lr = 0.02, dtype = "float32"}}
local which = 1 + of_model.below(#optimizers)
local others = {match = "**.bias|**norm.weight|words.*|places.*|output.*", optimizer = optimizers[1]}

return train{
  model = model,
  batch = distribute({input = randint(WORDS){BATCH, LENGTH}, target = randint(WORDS){BATCH, LENGTH}}, mesh.dp, Shard(0)),
  loss = function(output, batch)
    local target = ignored and F.where(batch.input:lt(3), -100, batch.target) or batch.target
    local loss = F.cross_entropy(half and output:to("float32") or output, target, {dim = -1})
    return penalty and loss + model.norm.weight:square():sum() * 1e-2 or loss
  end,
  optimizer = optimizers[which], groups = which == 4 and {others} or nil,
  clip = of_model.of{0.5, 100}, checkpoint = t.checkpoint, steps = 3, seed = number,
  accumulate = of_model.one_in(3) and 2 or nil,
}
