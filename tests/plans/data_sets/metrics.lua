-- Metrics where the last batch of an epoch is smaller: sums, means, a variance, a root, a product and extremes over
-- samples, also merged with positions, of what layers make and of inputs alone. The loss has labels that it ignores.
-- -D accumulate, -D microbatches, -D dp, -D tp, -D pp; -D validates=true: validate = {}; -D loss=present: an input of the plan says
-- which samples are there, and metrics have it, too.
local mesh = device_mesh{ {"pp", args.pp or 1}, {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local BATCH, WIDTH, CLASSES = 4, 6, 5

local Block = nn.module("Block", function(self)
  self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
  function self:forward(x)
    local hidden = self.up(x):relu()
    return x + self.down(hidden), hidden:ge(0):to("float32"):mean({0, 1})
  end
end)

local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{Block(), Block(), Block(), Block()}
  self.head = nn.Linear(WIDTH, CLASSES)
  function self:forward(x)
    local all = {}
    for i, layer in ipairs(self.layers) do x, all[i] = layer(x) end
    return {logits = self.head(x), all = all}
  end
end)

local model = parallelize(Model(), mesh.tp, {["layers.*"] = {up = Colwise(), down = Rowwise()}})
if args.pp then pipeline(model, mesh.pp, {schedule = "1f1b", microbatches = args.microbatches or args.pp}) end

local batch = {input = randn{BATCH, WIDTH}, labels = zeros{BATCH, dtype = "int64"}}
if args.loss == "present" then batch.here = present{BATCH} end

local function each(output, batch) return F.cross_entropy(output.logits, batch.labels, {reduction = "none"}) end

return train{
  model = model, batch = distribute(batch, mesh.dp, Shard(0)),
  loss = function(output, batch)
    if args.loss == "present" then return (each(output, batch) * batch.here):sum() / batch.here:sum() end
    return F.cross_entropy(output.logits, batch.labels)
  end,
  metrics = function(output, batch)
    local x = batch.input
    local ones = (x:square():sum(1) * 0 + 1)
    local result = {
      ones = ones:mean(), samples = ones:sum(), whole = x:ge(-1e9):to("float32"):mean(0):sum() / WIDTH,
      merged = x:flatten(0, 1):ge(-1e9):to("float32"):mean(), first = x:square():mean(1):mean(),
      root = x:square():mean():sqrt(), product = x:transpose(0, 1):matmul(ones:unsqueeze(1)):sum(),
      right = output.logits:amax(-1):ge(output.logits:amin(-1)):to("float32"):mean(),
      all = F.stack(output.all, 0), again = F.cross_entropy(output.logits, batch.labels),
    }
    if args.whole then
      result.spread, result.most, result.least = x:var(0):mean(), x:amax(), x:amin()
      result.count = x:ge(-1e9):sum():to("float32")
    end
    if args.loss == "present" then
      result.both = (ones * batch.here):sum() / batch.here:sum()
      result.again_both = (each(output, batch) * batch.here):sum() / batch.here:sum()
      result.two = (ones * batch.here):replicate():narrow(0, 1, 2):sum()
    end
    return result
  end,
  optimizer = SGD{lr = 0.01}, steps = 12, seed = 3, drop_last = false, accumulate = args.accumulate,
  microbatches = not args.pp and args.microbatches or nil, validate = args.validates and {} or nil,
}
