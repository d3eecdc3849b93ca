-- A model that trains on integers, with two batches a step, dropout, and ranks whose parts differ.
local mesh = device_mesh{ {"tp", args.tp or 2} }
local CLASSES, WIDTH = 5, 6

local Model = nn.module("Model", function(self)
  self.words = nn.Embedding(CLASSES, WIDTH)
  self.drop = nn.Dropout(0.2)
  self.output = nn.Linear(WIDTH, CLASSES)
  function self:forward(ids)
    return self.output(self.drop(self.words(ids)))
  end
end)

return train{
  model = parallelize(Model(), mesh.tp, {
    words = Rowwise(), output = Colwise{output_layouts = Shard(-1)},
  }),
  batch = { input = randint(CLASSES){4, 3}, target = randint(CLASSES){4, 3} },
  loss = function(logits, batch) return F.cross_entropy(logits, batch.target) end,
  optimizer = AdamW{lr = 0.02, eps = 1e-3},
  accumulate = 2, clip = 1, drop_last = true, validate = {},
  steps = 5, seed = 5,
  emit = "library", library_name = "ocean",
}
