-- A causal ring over sequences in head-tail order, by the greedy planner: what a rank knows of the places of a block is that
-- of another rank's part, a shifted one. Of ranks with fewer heads a smaller micro-batch has smaller blocks, and no room for more.
-- mesh: cp=2 tp=2 balance=headtail microbatches=2
-- mesh: cp=3 balance=headtail
-- mesh: cp=2 tp=3 microbatches=3
-- cuda: cp=3 balance=headtail
local mesh = device_mesh{ {"cp", args.cp or 1}, {"tp", args.tp or 1} }
local WORDS, WIDTH, LENGTH = 5, 8, 12

local Block = nn.module("Block", function(self)
  self.norm = nn.RMSNorm(WIDTH)
  self.q, self.k, self.v, self.o = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
  function self:forward(x)
    local h = self.norm(x)
    local function heads(t) return t:unflatten(-1, -1, 2):transpose(1, 2) end
    local y = F.scaled_dot_product_attention(heads(self.q(h)), heads(self.k(h)), heads(self.v(h)), {is_causal = true})
    return x + self.o(y:transpose(1, 2):flatten(2))
  end
end)
local Model = nn.module("Model", function(self)
  self.words, self.layers, self.out = nn.Embedding(WORDS, WIDTH), nn.ModuleList{Block(), Block()}, nn.Linear(WIDTH, WORDS)
  function self:forward(ids)
    local x = self.words(ids)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.out(x)
  end
end)

local model = parallelize(Model(), mesh.tp, {["layers.*"] = {q = Colwise(), k = Colwise(), v = Colwise(), o = Rowwise()}})
local batch = {input = randint(WORDS){4, LENGTH}, target = randint(WORDS){4, LENGTH}}
if args.cp then
  context_parallel(model, mesh.cp, {balance = args.balance})
  distribute(batch, mesh.cp, Shard(1))
end

return train{
  model = model, batch = batch,
  loss = function(output, batch) return F.cross_entropy(output, batch.target, {dim = -1}) end,
  optimizer = SGD{lr = 0.1}, steps = 3, seed = 8, planner = "greedy", microbatches = args.microbatches,
}
