-- args: --target cuda -D bucketing=none
-- Layers that are units: each one's parameters are gathered while the layer before it is at work, and
-- its gradients reduced beside the layer behind it.
local copied = args.copies and {"copies", args.copies} or nil
local mesh = device_mesh(copied and { copied, {"dp", 4} } or { {"dp", 4}, memory = args.memory })
local over = copied and mesh{"copies", "dp"} or mesh.dp
local dim, hidden = args.dim or 1024, args.hidden or 4096
local Block = nn.module("Block", function(self)
  self.up   = nn.Linear(dim, hidden, {bias = false})
  self.down = nn.Linear(hidden, dim, {bias = false})
  function self:forward(x) return x + self.down(F.silu(self.up(x))) end
end)
local Model = nn.module("Model", function(self)
  local blocks = {}
  for i = 1, 4 do blocks[i] = Block() end
  self.first = nn.Linear(512, dim, {bias = false})
  self.layers = nn.ModuleList(blocks)
  self.last = nn.Linear(dim, 512, {bias = false})
  function self:forward(x)
    x = self.first(x)
    for _, b in ipairs(self.layers) do x = b(x) end
    return self.last(x)
  end
end)
local model = Model()
for _, layer in ipairs(model.layers) do fully_shard(layer, over) end
fully_shard(model, over)
local n = args.batch or 16384
local batch = distribute({ input = randn{n, 512}, target = randn{n, 512} }, over, copied and {Shard(0), Shard(0)} or Shard(0))
return train{ model = model, batch = batch, loss = function(o, b) return (o - b.target):square():mean() end,
  optimizer = AdamW{ lr = 0.01 }, steps = 10, seed = 1, bucketing = args.bucketing,
  prefetch = args.prefetch, accumulate = args.accumulate, reduce_each_batch = args.accumulate and true }
