-- Sequence-parallel layers on replicas: the gradient of a layer's input is scattered beside the
-- product for its weight's gradient, and weights' gradients are summed over the replicas beside all
-- that follows.
local Block = nn.module("Block", function(self, dim, hidden)
  self.norm = nn.RMSNorm(dim)
  self.up   = nn.Linear(dim, hidden, {bias = false})
  self.down = nn.Linear(hidden, dim, {bias = false})
  function self:forward(x) return x + self.down(F.silu(self.up(self.norm(x)))) end
end)
local Model = nn.module("Model", function(self)
  local blocks = {}
  for i = 1, 4 do blocks[i] = Block(1024, 4096) end
  self.first = nn.Linear(512, 1024, {bias = false})
  self.layers = nn.ModuleList(blocks)
  function self:forward(x)
    x = self.first(x)
    for _, b in ipairs(self.layers) do x = b(x) end
    return x
  end
end)
local mesh = device_mesh{ {"dp", 2}, {"tp", 2} }
local model = parallelize(Model(), mesh.tp, {
  ["first"] = Rowwise{input_layouts = Replicate(), output_layouts = Shard(1)},
  ["layers.*.norm"] = SequenceParallel(),
  ["layers.*.up"]   = Colwise{input_layouts = Shard(1)},
  ["layers.*.down"] = Rowwise{output_layouts = Shard(1)},
})
local batch = distribute({ input = randn{32, 512, 512}, target = randn{32, 512, 1024} }, mesh.dp, Shard(0))
return train{ model = model, batch = batch, loss = function(o, b) return (o - b.target):var() end,
  optimizer = AdamW{ lr = 0.01 }, steps = 10, seed = 1 }
