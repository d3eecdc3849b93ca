-- A classifier over a data set that a file gives: -D loss=ce with labels, of which some are -100;
-- loss=mse with an input that says which samples are there. -D shuffle=SEED, -D last=smaller or
-- dropped, -D declared (no label is -100), -D taken (outputs and labels in reverse, by computed indices), -D batch=4, -D accumulate, -D mean=batches, -D drop (dropout),
-- -D several=losses (a second loss of the same labels ignores class 2), or spelled (the same, by an input that says which samples
-- are there), -D measured (a metric that is made once a step),
-- -D counted (metrics of the outputs; joined: validate says how), -D microbatches,
-- -D norm (a batch norm), -D ema (part of the moving average that stays), -D zero (ZeRO's stage; 3: fully sharded), -D dp, -D tp.
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local BATCH, WIDTH, HIDDEN, CLASSES = args.batch or 4, 6, 8, 5

local Model = nn.module("Model", function(self)
  self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, CLASSES)
  self.drop = nn.Dropout(args.drop or 0)
  if args.norm then self.norm = nn.BatchNorm1d(HIDDEN) end
  function self:forward(x)
    x = self.drop(F.gelu(self.up(x)))
    if self.norm then x = self.norm(x) end
    return self.down(x)
  end
end)
local model = parallelize(Model(), mesh.tp, {up = Colwise(), down = Rowwise()})
if args.zero == 3 then
  fully_shard(model, mesh.dp)
elseif args.zero then
  replicate(model, mesh.dp, {zero = args.zero})
end

local batch = { input = randn{BATCH, WIDTH} }
if args.loss == "mse" then
  batch.target, batch.here = randn{BATCH, CLASSES}, present{BATCH}
else
  if args.several == "spelled" then batch.here = present{BATCH} end
  batch.labels = args.declared and randint(0, CLASSES){BATCH, dtype = "int64"} or zeros{BATCH, dtype = "int64"}
end

-- The mean over the samples that are there, of the mean of each.
local function mean_square(output, batch)
  local each = (output - batch.target):square():mean(1)
  return (each * batch.here):sum() / batch.here:sum()
end
local function cross_entropy(output, batch)
  local labels = batch.labels
  if args.taken then
    local order = BATCH - 1 - F.arange(BATCH)
    output, labels = output:index_select(0, order), labels:index_select(0, order)
    labels = F.cat({labels, F.full({1}, -100, "int64")}, 0):narrow(0, 0, BATCH)
  end
  return F.cross_entropy(output, labels)
end
local function several(output, batch)
  local function loss(ignored) return F.nll_loss(output:log_softmax(-1), batch.labels, {ignore_index = ignored}) end
  return cross_entropy(output, batch) + 0.5 * loss(2)
end
local function spelled(output, batch)
  local each, here = F.cross_entropy(output, batch.labels, {reduction = "none"}), batch.here
  local counts = here * batch.labels:ne(2):to("float32")
  return (each * here):sum() / here:sum() + 0.5 * (each * counts):sum() / counts:sum()
end
local function measured(output, batch)
  local counts = batch.labels:ne(1):to("float32")
  return {of_others = (output:amax(-1) * counts):sum() / counts:sum()}
end

local function counted(output, batch)
  local hit = output:argmax(-1):eq(batch.labels):to("float32")
  local of_batches = {accuracy = hit:mean(), hits = hit:sum(), of_class = output:mean(0)}
  if not args.microbatches then of_batches.least, of_batches.greatest = output:amin(), output:amax() end
  return of_batches
end
local joinings = {accuracy = "mean_of_samples", hits = "sum", of_class = "mean_of_samples"}
if not args.microbatches then joinings.least, joinings.greatest = "min", "max" end

local last
if args.last then last = args.last == "dropped" end
return train{
  model = model, batch = distribute(batch, mesh.dp, Shard(0)),
  loss = args.several == "losses" and several or args.several and spelled or args.loss == "mse" and mean_square or cross_entropy,
  metrics = args.measured and measured or args.counted and counted, microbatches = args.microbatches,
  optimizer = AdamW{lr = 0.01}, steps = 18, seed = 11,
  shuffle = args.shuffle, drop_last = last, accumulate = args.accumulate, accumulate_mean = args.mean, ema = args.ema,
  validate = args.counted == "joined" and {metrics = joinings} or args.every and {every = args.every, data = args.validation, steps = args.batches},
}
