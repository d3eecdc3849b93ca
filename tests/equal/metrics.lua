-- Metrics of a step in micro-batches, and of stages, are those of one rank that takes its batch at once: sums and means over
-- samples, of counts, of what layers make, of the inputs alone, and of weights; and what is made of them once a step: maxima,
-- a ratio, a root, a choice.
-- mesh: microbatches=2 dp=2
-- mesh: pp=2 microbatches=4 dp=3
-- cuda: pp=2 microbatches=4 dp=3
-- mesh: microbatches=3 dp=2 tp=2
-- sanitized: microbatches=3 dp=2 tp=2
-- cuda: microbatches=3 dp=2 tp=2
-- mesh: pp=2
-- mesh: pp=3 tp=2
-- mesh: microbatches=5 dp=2
-- mesh: microbatches=12
local mesh = device_mesh{ {"pp", args.pp or 1}, {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local WORDS, WIDTH, LENGTH = 11, 12, 6

local Block = nn.module("Block", function(self)
  self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
  function self:forward(x)
    local hidden = self.up(x):relu()
    return x + self.down(hidden), hidden:gt(0):to("float32"):mean({0, 1})
  end
end)

local Model = nn.module("Model", function(self)
  self.words = nn.Embedding(WORDS, WIDTH)
  self.layers = nn.ModuleList{Block(), Block(), Block(), Block()}
  self.head = nn.Linear(WIDTH, WORDS)
  function self:forward(ids)
    local x, alive, busy = self.words(ids), {}, nil
    for i, layer in ipairs(self.layers) do
      x, busy = layer(x)
      alive[i] = busy
    end
    return {logits = self.head(x), alive = alive}
  end
end)

local model = parallelize(Model(), mesh.tp, {["layers.*"] = {up = Colwise(), down = Rowwise()}})
if args.pp then pipeline(model, mesh.pp, {schedule = "1f1b", microbatches = args.microbatches or args.pp}) end

local function counted(batch) return F.where(batch.input:lt(4), -100, batch.target) end
local function valid(batch) return batch.input:ge(4):to("float32") end

return train{
  model = model,
  batch = distribute({input = randint(WORDS){12, LENGTH}, target = randint(WORDS){12, LENGTH}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.cross_entropy(output.logits, counted(batch), {dim = -1}) end,
  metrics = function(output, batch)
    local right = output.logits:argmax(-1):eq(batch.target):to("float32") * valid(batch)
    local alive = F.stack(output.alive, 0)
    local weight = model.head.weight:square():sum()
    return {
      accuracy = (right:sum() + 1) / valid(batch):sum(),
      alive = alive, most_alive = alive:amax() + 0.5, least = alive:amin(-1), busy = alive:gt(0.49):to("float32"):sum() + 1,
      all_targets = batch.input:ge(4):to("float32"):sum(), share = valid(batch):mean():sqrt(),
      loss_again = F.cross_entropy(output.logits, counted(batch), {dim = -1}),
      weight = weight, per_weight = (output.logits:square():mean() / weight):sqrt(),
    }
  end,
  optimizer = SGD{lr = 0.1, momentum = 0.9}, clip = 0.5, steps = 4, seed = 23,
  microbatches = not args.pp and args.microbatches or nil,
}
