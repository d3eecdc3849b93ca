-- Whole gradients of several batches are reduced beside the backward of the last one: of repeated layers, which await each
-- other's; in place, to shards, and over shards and then their copies; of a tied table, and of what is no layer's; with a
-- norm that clips. The links are slow, so that every reduction is worth an overlap.
-- mesh: dp=2 batches=3
-- mesh: dp=4 shard=2 microbatches=3 batches=2
-- sanitized: dp=4 shard=2 microbatches=3 batches=2
-- cuda: dp=4 shard=2 microbatches=3 batches=2
-- mesh: dp=2 microbatches=4
-- cuda: dp=2 microbatches=4
-- mesh: dp=2 zero=1 microbatches=2
-- cuda: dp=2 zero=1 microbatches=2
-- mesh: dp=2 zero=2 microbatches=2
-- cuda: dp=2 zero=2 microbatches=2
-- mesh: dp=2 shard=2 batches=3
-- cuda: dp=2 shard=2 batches=3
-- mesh: dp=4 shard=2 microbatches=2 each=true
-- cuda: dp=4 shard=2 microbatches=2 each=true
-- mesh: dp=2 microbatches=4 bucketing=none
-- cuda: dp=2 microbatches=4 bucketing=none
-- mesh: dp=2 shard=2 microbatches=2 bucketing=greedy
-- cuda: dp=2 shard=2 microbatches=2 bucketing=greedy
-- mesh: dp=2 shard=2 microbatches=2 pp=2
-- cuda: dp=2 shard=2 microbatches=2 pp=2
local dp, shard, pp = args.dp or 1, args.shard or 1, args.pp or 1
local slow = {bandwidth = 2e7, latency = 1e-7}
local function dimension(name, size) return {name, size, bandwidth = slow.bandwidth, latency = slow.latency} end
local mesh = device_mesh{
  dimension("pp", pp), dimension("copies", dp // shard), dimension("shards", shard), device = "H100",
}
local WORDS, WIDTH, HIDDEN, LENGTH = 10, 12, 14, 6

local Block = nn.module("Block", function(self)
  self.norm = nn.RMSNorm(WIDTH, {eps = 1e-5})
  self.w1, self.w2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
  function self:forward(x) return x + self.w2(F.silu(self.w1(self.norm(x)))) end
end)

local Model = nn.module("Model", function(self)
  self.embedding = nn.Embedding(WORDS, WIDTH)
  self.layers = nn.ModuleList{Block(), Block(), Block(), Block()}
  self.norm, self.scale = nn.RMSNorm(WIDTH, {eps = 1e-5}), nn.Parameter(ones{WORDS})
  function self:forward(ids)
    local x = self.embedding(ids)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return F.linear(self.norm(x), self.embedding.weight) * self.scale
  end
end)

local model = Model()
local cut = mesh{"copies", "shards"}
if args.zero then
  replicate(model, mesh.copies, {zero = args.zero})
elseif shard > 1 then
  for _, layer in ipairs(model.layers) do fully_shard(layer, cut) end
  fully_shard(model, cut)
end
if pp > 1 then pipeline(model, mesh.pp, {microbatches = args.microbatches}) end

local each = args.each
if each == nil and (shard > 1 or args.zero == 1) then each = false end
return train{
  model = model,
  batch = distribute({
    input = randint(WORDS){16, LENGTH}, target = randint(WORDS){16, LENGTH},
  }, cut, {Shard(0), Shard(0)}),
  loss = function(output, batch) return F.cross_entropy(output, batch.target) end,
  optimizer = AdamW{lr = 1e-2},
  bucketing = args.bucketing,
  microbatches = pp == 1 and args.microbatches or nil,
  accumulate = args.batches, accumulate_mean = "batches",
  reduce_each_batch = each,
  clip = 0.5, steps = 3, seed = 31,
}
