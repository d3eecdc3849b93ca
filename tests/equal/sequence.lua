-- Sequence parallelism: between the blocks x lies S(1), inside a block it is whole, and the block's
-- sums are scattered back along the sequence. A residual runs past the block.
-- mesh: tp=2
-- mesh: tp=3
-- mesh: tp=4
-- mesh: dp=2 tp=2
-- mesh: dp=3 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Gain = nn.module("Gain", function(self, n)
  self.weight = nn.Parameter{n, init = nn.init.uniform(0.5, 1.5)}
  function self:forward(x) return x * self.weight end
end)

local Block = nn.module("Block", function(self)
  self.norm = Gain(6)
  self.up = nn.Linear(6, 7)
  self.down = nn.Linear(7, 6)
  function self:forward(x)
    return self.down(self.up(self.norm(x)):tanh())
  end
end)

local Model = nn.module("Model", function(self)
  self.first = Gain(6)
  self.blocks = nn.ModuleList{Block(), Block()}
  self.head = nn.Linear(6, 3)
  function self:forward(x)
    x = self.first(x)
    for _, block in ipairs(self.blocks) do x = x + block(x) end
    return self.head(x)
  end
end)

return train{
  model = parallelize(Model(), mesh.tp, {
    first = SequenceParallel(),
    ["blocks.*.norm"] = SequenceParallel(),
    ["blocks.*.up"] = Colwise{input_layouts = Shard(1)},
    ["blocks.*.down"] = Rowwise{output_layouts = Shard(1)},
    head = Colwise{input_layouts = Shard(1), output_layouts = Replicate()},
  }),
  batch = distribute({input = randn{3, 5, 6}, target = randn{3, 5, 3}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return ((output - batch.target)^2):mean() end,
  optimizer = SGD{lr = 0.3},
  steps = 5, seed = 3,
}
