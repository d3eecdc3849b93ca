-- Cross-entropy over classes that are cut over ranks, some of which may have none: the mean, and the
-- sum with a class that counts for nothing; of one model whole logits are asked for.
-- mesh: tp=2
-- mesh: tp=3
-- mesh: tp=4
-- sanitized: tp=4
-- cuda: tp=4
-- mesh: dp=2 tp=3
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local CLASSES, WIDTH = 5, 6

local Heads = nn.module("Heads", function(self)
  self.words = nn.Embedding(CLASSES, WIDTH)
  self.cut, self.whole = nn.Linear(WIDTH, CLASSES), nn.Linear(WIDTH, CLASSES, {bias = false})
  function self:forward(ids)
    local x = self.words(ids)
    return {cut = self.cut(x), whole = self.whole(x)}
  end
end)

local model = parallelize(Heads(), mesh.tp, {
  words = Rowwise(),
  cut = Colwise{output_layouts = Shard(-1)},
  whole = Colwise{output_layouts = Replicate()},
})
local batch = distribute({
  input = randint(CLASSES){4, 3}, target = randint(CLASSES){4, 3},
}, mesh.dp, Shard(0))

return train{
  model = model, batch = batch,
  loss = function(outputs, batch)
    local cut, whole = outputs.cut, outputs.whole
    local some = F.cross_entropy(cut, batch.target, {reduction = "sum", ignore_index = 2})
    return F.cross_entropy(cut, batch.target) + 0.1 * some + F.cross_entropy(whole, batch.target)
  end,
  optimizer = AdamW{lr = 0.02, eps = 1e-3},
  steps = 4, seed = 5,
}
