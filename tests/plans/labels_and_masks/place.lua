-- A loss that tells which tokens it is of: nothing is learnt.
local LENGTH, WORDS = 8, 50
local mesh = device_mesh{ {"dp", args.dp or 1} }
local Model = nn.module("Model", function(self)
  self.words, self.output = nn.Embedding(WORDS, 8), nn.Linear(8, WORDS)
  function self:forward(ids) return self.output(self.words(ids)) end
end)
return train{
  model = Model(),
  batch = distribute({
    input = tokens(WORDS){args.batch, LENGTH}, target = tokens(WORDS, 1){args.batch, LENGTH},
  }, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.cross_entropy(output, batch.target) end,
  optimizer = SGD{lr = 0}, steps = 1, accumulate = args.accumulate,
}
