-- Small, and with all that a training carries from step to step: averages of gradients, numbers of
-- steps in the learning rate and in dropout, a place in the data, several batches in a step.
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Block = nn.module("Block", function(self)
  self.up = nn.Linear(12, 24)
  self.down = nn.Linear(24, 12, {bias = false})
  self.dropout = nn.Dropout(0.1)
  function self:forward(x)
    return x + self.dropout(self.down(self.up(x):relu()))
  end
end)

local Model = nn.module("Model", function(self)
  self.embedding = nn.Embedding(256, 12)
  self.blocks = nn.ModuleList{Block(), Block(), Block()}
  self.output = nn.Linear(12, 256)
  function self:forward(input)
    local x = self.embedding(input)
    for _, block in ipairs(self.blocks) do x = block(x) end
    return self.output(x)
  end
end)

return train{
  model = parallelize(Model(), mesh.tp, {
    ["blocks.*.up"] = Colwise(), ["blocks.*.down"] = Rowwise(),
  }),
  batch = distribute({input = tokens(256){4, 5}, target = tokens(256, 1){4, 5}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.cross_entropy(output, batch.target) end,
  optimizer = AdamW{lr = 0.01},
  clip = 1,
  schedule = WarmupCosine{warmup = 4, steps = 2000, least = 0.1},
  accumulate = 2,
  names = {["embedding.weight"] = "wte", ["blocks.*.up.weight"] = "h.*.mlp.fc.weight"},
  steps = 12, seed = 5,
}
