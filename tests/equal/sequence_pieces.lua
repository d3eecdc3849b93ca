-- The same with sequence parallelism, the batch cut along the sequence by another dimension of the mesh.
-- mesh: cp=2 dp=2 pieces=2
-- cuda: cp=2 dp=2 pieces=2
local mesh = device_mesh{ {"cp", args.cp or 1}, {"dp", args.dp or 1} }

local Block = nn.module("Block", function(self)
  self.norm = nn.LayerNorm(16)
  self.up, self.down = nn.Linear(16, 48), nn.Linear(48, 1)
  function self:forward(x)
    x = self.norm(x)
    return x + self.down(F.gelu(self.up(x)))
  end
end)
local Model = nn.module("Model", function(self)
  self.layers, self.output = nn.ModuleList{Block(), Block()}, nn.Linear(16, 2)
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.output(x)
  end
end)

local model = parallelize(Model(), mesh.dp,
  {["layers.*.norm"] = SequenceParallel{sequence_dim = 1}}, {async_tp = args.pieces})
replicate(model, mesh.dp, {zero = 2})
return train{
  model = model, batch = distribute({input = randn{2, 2, 16}}, mesh.cp, Shard(1)),
  loss = function(output) return output:var() end,
  optimizer = SGD{lr = 0.1}, steps = 3,
}
