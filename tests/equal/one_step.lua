-- Recurrences of one step, in micro-batches of cut samples: what the first state makes with a weight is whole, and its gradient
-- is a term of the sum over micro-batches, from what ranks have cut outside of these and within.
-- mesh: microbatches=2
-- mesh: dp=2 tp=2 microbatches=2 sharded=1
-- mesh: dp=3 microbatches=3
-- mesh: dp=2 microbatches=4
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local WIDTH, WORDS, BATCH = 6, 8, 12

local Block = nn.module("Block", function(self)
  self.norm, self.rnn = nn.LayerNorm(WIDTH), nn.RNN(WIDTH, WIDTH, {batch_first = true})
  function self:forward(x) return (self.rnn(self.norm(x))) end
end)
local Model = nn.module("Model", function(self)
  self.words, self.layers, self.out = nn.Embedding(WORDS, WIDTH), nn.ModuleList{Block(), Block()}, nn.Linear(WIDTH, WORDS)
  function self:forward(ids)
    local x = self.words(ids)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.out(x)
  end
end)

local model = parallelize(Model(), mesh.tp, {words = Rowwise{output_layouts = Shard(1)}})
if args.sharded then
  for _, layer in ipairs(model.layers) do fully_shard(layer, mesh.dp) end
  fully_shard(model, mesh.dp)
end

return train{
  model = model, batch = distribute({input = randint(WORDS){BATCH, 1}, target = randint(WORDS){BATCH, 1}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.cross_entropy(output, batch.target, {dim = -1}) end,
  optimizer = SGD{lr = 0.2}, steps = 3, seed = 6, microbatches = args.microbatches,
}
