-- BatchNorm: statistics over a batch that is cut, over channels that are cut, and running ones, which follow
-- them, as whole buffers or, fully sharded, in parts; in a list of modules and alone.
-- mesh: dp=2
-- mesh: dp=3
-- mesh: tp=2
-- mesh: dp=2 tp=2
-- mesh: dp=2 sharded=1
-- mesh: dp=3 sharded=1
-- sanitized: dp=2 sharded=1
-- cuda: dp=2
-- cuda: dp=2 sharded=1
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Block = nn.module("Block", function(self)
  self.conv, self.norm = nn.Conv2d(4, 4, 3, {padding = 1, bias = false}), nn.BatchNorm2d(4, 1e-3, 0.2)
  function self:forward(x)
    x = x:redistribute(mesh.tp, Shard(1))
    return F.relu(self.norm(self.conv(x))) + x
  end
end)
local Model = nn.module("Model", function(self)
  self.stem = nn.Conv2d(3, 4, 3)
  self.blocks = nn.ModuleList{Block(), Block(), Block()}
  self.head, self.norm = nn.Linear(4, 5, false), nn.BatchNorm1d(5, {affine = false})
  function self:forward(x)
    x = self.stem(x)
    for _, block in ipairs(self.blocks) do x = block(x) end
    return self.norm(self.head(x:mean({2, 3})))
  end
end)
local model = Model()
if args.sharded then
  for _, block in ipairs(model.blocks) do fully_shard(block, mesh.dp) end
  fully_shard(model, mesh.dp)
end
return train{
  model = model, batch = distribute({input = randn{6, 3, 6, 6}, target = randint(5){6}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.cross_entropy(output, batch.target) end,
  optimizer = SGD{lr = 0.05, momentum = 0.9}, steps = 4, clip = 1, seed = 3,
}
