-- async_tp with several batches: a weight's gradient is a product in pieces, which is added up.
-- mesh: tp=2 b=2 pieces=2
-- cuda: tp=2 b=2 pieces=2
-- mesh: tp=3 pieces=4
local mesh = device_mesh{ {"tp", args.tp or 1}, {"b", args.b or 1} }

local Block = nn.module("Block", function(self)
  self.up, self.down = nn.Linear(12, 36), nn.Linear(36, 1)
  function self:forward(x) return x + self.down(F.gelu(self.up(x))) end
end)
local Model = nn.module("Model", function(self)
  self.layers, self.output = nn.ModuleList{Block(), Block(), Block(), Block()}, nn.Linear(12, 12)
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.output(x)
  end
end)

return train{
  model = parallelize(Model(), mesh.tp, {["layers.*"] = {up = Rowwise(), down = Rowwise()}},
    {async_tp = args.pieces}),
  batch = distribute({input = randn{2, 2, 12}, target = randn{2, 2, 12}}, mesh.b, Shard(2)),
  loss = function(output, batch) return F.mse_loss(output, batch.target) end,
  optimizer = SGD{lr = 0.1}, steps = 3, accumulate = 2,
}
