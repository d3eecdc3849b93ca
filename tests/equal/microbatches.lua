-- A step that goes through its batch in parts has the loss and the gradients of one that does not: a loss that
-- divides by the targets that count, which differ from part to part; a second term of the loss that depends on
-- weights alone; dropout; a table of positions and a weight of two uses; tied, sharded and clipped.
-- mesh: microbatches=2
-- mesh: microbatches=3 dp=2 tp=2
-- mesh: microbatches=6 tp=2
-- sanitized: microbatches=3 dp=2 tp=2
-- mesh: microbatches=2 dp=3 sharded=1
-- mesh: microbatches=4 dp=3 sharded=1 each=false
-- mesh: microbatches=2 dp=2 tp=2 sharded=1
-- cuda: microbatches=2 dp=2 tp=2 sharded=1
-- mesh: microbatches=12
-- mesh: microbatches=5 dp=2 tp=2
-- sanitized: microbatches=5 dp=2 tp=2
-- cuda: microbatches=5 dp=2 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local WORDS, WIDTH, HIDDEN, LENGTH, HEADS = 11, 12, 14, 6, 4

local function heads(x) return x:unflatten(-1, HEADS, WIDTH // HEADS):transpose(1, 2) end

local Block = nn.module("Block", function(self)
  self.norm = nn.LayerNorm(WIDTH)
  self.q, self.k, self.v = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
  self.o, self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
  function self:forward(x)
    local y = self.norm(x)
    y = F.scaled_dot_product_attention(heads(self.q(y)), heads(self.k(y)), heads(self.v(y)), {causal = true})
    x = x + self.o(y:transpose(1, 2):flatten(2))
    return x + self.down(F.dropout(F.gelu(self.up(x)), 0.2))
  end
end)

local Model = nn.module("Model", function(self)
  self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
  self.layers = nn.ModuleList{Block(), Block()}
  self.norm = nn.LayerNorm(WIDTH)
  function self:forward(ids)
    local x = self.words(ids) + self.places(F.arange(LENGTH))
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return F.linear(self.norm(x), self.words.weight)
  end
end)

local model = parallelize(Model(), mesh.tp, {
  ["layers.*"] = {q = Colwise(), k = Colwise(), v = Colwise(), o = Rowwise(), up = Colwise(), down = Rowwise()},
})
if args.sharded then
  for _, layer in ipairs(model.layers) do fully_shard(layer, mesh.dp) end
  fully_shard(model, mesh.dp)
end

return train{
  model = model,
  batch = distribute({input = randint(WORDS){12, LENGTH}, target = randint(WORDS){12, LENGTH}}, mesh.dp, Shard(0)),
  loss = function(output, batch)
    local target = F.where(batch.input:lt(4), -100, batch.target)
    local penalty = model.words.weight:square():sum() + model.norm.weight:square():sum()
    return F.cross_entropy(output, target, {dim = -1}) + penalty * 1e-3
  end,
  optimizer = SGD{lr = 0.1, momentum = 0.9}, clip = 0.5, steps = 4, seed = 23,
  microbatches = args.microbatches, reduce_each_batch = args.each,
}
