-- Micro-batches of unlike sizes where samples are not outermost: merged with the positions before them, they are an inner
-- factor of a dimension; values of one bucket have few elements a sample. Weights of classes, of labels that nothing merges. A
-- smaller micro-batch has a kernel index_select_2, as the second value would be called.
-- mesh: microbatches=5 dp=2 tp=2
-- mesh: microbatches=2 tp=2
-- cuda: microbatches=2 tp=2
-- mesh: microbatches=2 dp=3
-- mesh: microbatches=2 tp=3
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local WIDTH, LENGTH, CLASSES = 6, 4, 5

local Model = nn.module("Model", function(self)
  self.up, self.down = nn.Linear(WIDTH, 8), nn.Linear(8, WIDTH)
  self.out, self.other = nn.Linear(WIDTH, CLASSES), nn.Linear(WIDTH, CLASSES)
  function self:forward(x)
    local y = x:transpose(0, 1):flatten(0, 1)
    y = y + self.down(F.gelu(self.up(y)))
    return {self.out(y), self.other(x)}
  end
end)

local model = parallelize(Model(), mesh.tp, {up = Colwise(), down = Rowwise(), out = Colwise()})

-- The mean of one number a label, each with the weight of its class.
local function weighted(x, weight, batch)
  local classes = (batch.target:to("float32") * 0.9):to("int64"):t():flatten()
  local weights = weight:index_select(0, classes)
  return (x:t():flatten() * weights):sum() / weights:sum()
end

return train{
  model = model,
  batch = distribute({input = randn{11, LENGTH, WIDTH}, target = randint(CLASSES){11, LENGTH}}, mesh.dp, Shard(0)),
  loss = function(output, batch)
    local weight, target = F.arange(CLASSES) + 1.0, F.where(batch.target:eq(2), -100, batch.target)
    return F.cross_entropy(output[1], target:t():flatten(), {label_smoothing = 0.1, weight = weight})
      + F.cross_entropy(output[2], target, {dim = -1, weight = weight})
      + weighted(output[2]:square():sum(-1), weight, batch) + weighted(output[2]:logsumexp(-1), weight:sqrt(), batch)
  end,
  metrics = function(output, batch)
    return {right = output[1]:argmax(-1):eq(batch.target:t():flatten()):to("float32"):mean()}
  end,
  optimizer = AdamW{lr = 0.02, eps = 1e-3}, steps = 3, seed = 3, grad_norm = true, microbatches = args.microbatches,
}
