-- Data parallel in each of its ways: copies, with the optimizer's state cut (ZeRO-1), with the gradients
-- too (ZeRO-2), fully sharded, in groups, and beside tensor parallel. The batch is uneven, on some meshes
-- empty on the last rank; some targets count for nothing; the norm over all ranks clips the gradients of
-- two batches a step.
-- mesh: dp=2 how=replicate
-- mesh: dp=3 zero=1
-- mesh: dp=2 tp=2 zero=1
-- mesh: dp=4 zero=2
-- cuda: dp=4 zero=2
-- mesh: dp=2 tp=2 how=shard each=false
-- mesh: copies=2 dp=2 how=shard
-- cuda: copies=2 dp=2 how=shard
-- mesh: dp=4 how=shard groups=2
local mesh = device_mesh{ {"copies", args.copies or 1}, {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local data = mesh{"copies", "dp"}
local plain = {bias = false}
local WORDS, WIDTH, HIDDEN, LENGTH = 10, 12, 14, 6

local Block = nn.module("Block", function(self)
  self.norm = nn.RMSNorm(WIDTH, {eps = 1e-5})
  self.w1, self.w2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
  function self:forward(x) return x + self.w2(F.silu(self.w1(self.norm(x)))) end
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
if args.how == "replicate" then replicate(model, data) end
if args.zero then replicate(model, data, {zero = args.zero}) end
if args.how == "shard" then
  local options = {reshard_after_forward = args.groups}
  for _, layer in ipairs(model.layers) do fully_shard(layer, data, options) end
  fully_shard(model, data)
end

return train{
  model = model,
  batch = distribute({
    input = tokens(WORDS){5, LENGTH}, target = randint(WORDS){5, LENGTH},
  }, data, {Shard(0), Shard(0)}),
  loss = function(output, batch)
    return F.cross_entropy(output, batch.target, {ignore_index = 0})
  end,
  optimizer = AdamW{lr = 0.02, eps = 1e-3, weight_decay = 0.1},
  clip = 0.5, accumulate = 2, reduce_each_batch = args.each, steps = 4, seed = 23,
}
