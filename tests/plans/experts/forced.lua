-- Experts of tokens that the data sends to them: each place's expert is an input, so routing is whatever a file says.
-- -D how=dense computes the same without rows: every expert takes every token, and a token adds up those that its
-- places name. -D ep, -D tp, -D dp (ranks with the same experts), -D sharded (which cut the parameters of each),
-- -D outer (ep cuts before dp), -D experts, -D batch, -D microbatches, -D own: experts of the plan's own, which norm each
-- row. The loss also takes how many places each has.
local dp, ep, tp = args.dp or 1, args.ep or 1, args.tp or 1
local mesh = args.outer and device_mesh{ {"ep", ep}, {"dp", dp}, {"tp", tp} } or device_mesh{ {"dp", dp}, {"ep", ep}, {"tp", tp} }
local BATCH, LENGTH, PLACES, WIDTH, HIDDEN, EXPERTS = args.batch or 5, 4, 3, 6, 10, args.experts or 7

local function normed(x) return x * F.rsqrt(F.square(x):mean(-1, true) + 0.1) end

-- Experts of which each row is normed twice; what they do with linear(x, weight).
local function own(experts, x, linear)
  return normed(linear(normed(linear(x, experts.up_proj)), experts.down_proj)) * 2
end
local Own = nn.module("Own", function(self)
  local function weight(...)
    return nn.Parameter(distribute(randn{EXPERTS, ...}, mesh.ep, Shard(0)))
  end
  self.up_proj, self.down_proj = weight(HIDDEN, WIDTH), weight(WIDTH, HIDDEN)
  function self:forward(rows, counts)
    return own(self, rows, function(x, w) return F.grouped_linear(x, w, counts) end)
  end
end)

-- What expert e makes of all tokens.
local function expert(experts, x, e)
  local function linear(y, weight) return F.linear(y, weight:select(0, e)) end
  if args.own then return own(experts, x, linear) end
  return linear(F.silu(linear(x, experts.gate_proj)) * linear(x, experts.up_proj), experts.down_proj)
end

local function dense(experts, x, ids, weights)
  local sum, counts
  for e = 0, EXPERTS - 1 do
    local names = ids:eq(e):to("float32")
    local y = expert(experts, x, e) * (names * weights):sum(-1, true)
    local count = names:sum() * (e + 1) ^ 2
    sum, counts = sum and sum + y or y, counts and counts + count or count
  end
  return sum, counts
end

local function by_rows(experts, x, ids, weights)
  local counts = F.count_places(ids, {sizes = {e = EXPERTS}, scalar = args.bound})
  local rows = F.dispatch(x, ids, F.full({BATCH, LENGTH, PLACES}, 1.0), counts)
  local y = F.combine(experts(rows, counts), ids, weights, counts)
  return y, (counts * F.square(F.arange(EXPERTS) + 1)):sum():to("float32")
end

local Model = nn.module("Model", function(self)
  self.input, self.gate = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, PLACES)
  self.experts = args.own and Own() or nn.Experts(EXPERTS, WIDTH, HIDDEN, nn.init.normal(0, 0.7))
  self.output = nn.Linear(WIDTH, WIDTH)
  function self:forward(numbers, ids)
    local x = self.input(numbers:to("float32") / 50)
    local y, counts = (args.how == "dense" and dense or by_rows)(self.experts, x, ids, F.softmax(self.gate(x), -1))
    return {y = self.output(y), counts = counts}
  end
end)

local model = Model()
if tp > 1 then parallelize(model, mesh.tp, {experts = ExpertTensorParallel()}) end
if ep > 1 and not args.own then parallelize(model, mesh.ep, {experts = ExpertParallel()}) end
if args.sharded then fully_shard(model.experts, mesh.dp) end

return train{
  model = model,
  batch = distribute({
    numbers = randint(-50, 51){BATCH, LENGTH, WIDTH}, ids = randint(EXPERTS){BATCH, LENGTH, PLACES},
  }, mesh(args.outer and {"ep", "dp"} or {"dp", "ep"}), {Shard(0), Shard(0)}),
  forward = function(model, batch) return model(batch.numbers, batch.ids) end,
  loss = function(output, batch)
    local target = batch.numbers:to("float32") / 20
    return (output.y - target):square():mean() + output.counts * 1e-4
  end,
  optimizer = SGD{lr = 0.05}, steps = 12, seed = 5, microbatches = args.microbatches,
}
