-- Clipped gradients of several batches a step, which come whole, cut, and pending, some of repeated
-- layers; momentum, dropout by the batch, and a learning rate that goes up and down.
-- mesh: tp=2
-- mesh: tp=3
-- sanitized: tp=3
-- mesh: dp=2 tp=2
-- cuda: dp=2 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local plain = {bias = false}
local WORDS, WIDTH, HIDDEN, LENGTH = 10, 12, 14, 6

local Block = nn.module("Block", function(self)
  self.norm = nn.RMSNorm(WIDTH, {eps = 1e-5})
  self.w1, self.w2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
  function self:forward(x) return x + self.w2(F.dropout(F.silu(self.w1(self.norm(x))), 0.1)) end
end)

local Model = nn.module("Model", function(self)
  self.embedding = nn.Embedding(WORDS, WIDTH)
  self.layers = nn.ModuleList{Block(), Block(), Block()}
  self.norm, self.output = nn.RMSNorm(WIDTH, {eps = 1e-5}), nn.Linear(WIDTH, WORDS, plain)
  function self:forward(ids)
    local x = self.embedding(ids)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.output(self.norm(x))
  end
end)

local model = parallelize(Model(), mesh.tp, {
  embedding = Rowwise{output_layouts = Shard(1)},
  norm = SequenceParallel(),
  output = Colwise{input_layouts = Shard(1)},
  ["layers.*"] = {
    norm = SequenceParallel(),
    w1 = Colwise{input_layouts = Shard(1)},
    w2 = Rowwise{output_layouts = Shard(1)},
  },
})

return train{
  model = model,
  batch = distribute({
    input = randint(WORDS){4, LENGTH}, target = randint(WORDS){4, LENGTH},
  }, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.cross_entropy(output, batch.target) end,
  optimizer = SGD{lr = 0.1, momentum = 0.9, nesterov = true, weight_decay = 0.01},
  schedule = WarmupCosine{warmup = 2, least = 0.1},
  clip = 0.5, accumulate = 3, steps = 4, seed = 23,
}
