-- Micro-batches of one size on each rank, of which ranks take unlike parts: heads that the ranks do not divide, of sequences
-- that others cut, are exchanged for samples.
-- mesh: microbatches=2 cp=2 tp=3
-- mesh: microbatches=5 tp=3 cp=2 dp=2
-- cuda: microbatches=2 cp=2 tp=3
local mesh = device_mesh{ {"dp", args.dp or 1}, {"cp", args.cp or 1}, {"tp", args.tp or 1} }
local WIDTH, LENGTH, HEADS, WORDS = 8, 6, 4, 9

local Block = nn.module("Block", function(self)
  self.norm, self.q, self.k = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
  self.v, self.o = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
  function self:forward(x)
    local h = self.norm(x)
    local function heads(t) return t:unflatten(2, {HEADS, -1}):transpose(1, 2) end
    local y = F.scaled_dot_product_attention(heads(self.q(h)), heads(self.k(h)), heads(self.v(h)), {is_causal = true})
    return x + self.o(y:transpose(1, 2):flatten(2, 3))
  end
end)
local Model = nn.module("Model", function(self)
  self.words, self.layers = nn.Embedding(WORDS, WIDTH), nn.ModuleList{Block(), Block()}
  function self:forward(ids)
    local x = self.words(ids)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return F.linear(x, self.words.weight)
  end
end)
local model = parallelize(Model(), mesh.tp, {
  ["layers.*"] = {q = Colwise(), k = Colwise(), v = Colwise(), o = Rowwise()},
})
if args.cp then context_parallel(model, mesh.cp, {method = "allgather"}) end

local batch = {input = randint(WORDS){20, LENGTH}, target = randint(WORDS){20, LENGTH}}
return train{
  model = model,
  batch = distribute(distribute(batch, mesh.dp, Shard(0)), mesh.cp, Shard(1)),
  loss = function(output, batch) return F.cross_entropy(output, batch.target, {dim = -1}) end,
  optimizer = SGD{lr = 0.2}, steps = 3, seed = 8, microbatches = args.microbatches,
}
