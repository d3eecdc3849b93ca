-- Moves by the greedy planner, in equal layers that are called in a loop, on three dimensions of the mesh.
-- mesh: a=2 b=2
-- mesh: a=2 b=2 c=2
-- mesh: b=3 c=2
-- cuda: b=3 c=2
-- mesh: a=5
local mesh = device_mesh{ {"a", args.a or 1}, {"b", args.b or 1}, {"c", args.c or 1} }

local Block = nn.module("Block", function(self)
  self.up = nn.Linear(6, 7)
  self.down = nn.Linear(7, 6)
  function self:forward(x)
    local h = self.up(x):redistribute(mesh, {Shard(2), Shard(1), Shard(2)}):tanh()
    return self.down(h):redistribute(mesh, {Shard(1), Shard(0), Shard(1)})
  end
end)

local Model = nn.module("Model", function(self)
  self.blocks = nn.ModuleList{Block(), Block(), Block()}
  self.head = nn.Linear(6, 3)
  function self:forward(x)
    for _, block in ipairs(self.blocks) do
      x = x + block(x):redistribute(mesh, {Shard(0), Shard(1), Replicate()})
    end
    return self.head(x:redistribute(mesh.c, Shard(0)))
  end
end)

return train{
  model = parallelize(Model(), mesh.c, {["blocks.*.up"] = Colwise(), ["blocks.*.down"] = Rowwise()}),
  batch = distribute({input = randn{4, 5, 6}, target = randn{4, 5, 3}}, mesh.a, Shard(0)),
  loss = function(output, batch) return ((output - batch.target)^2):mean() end,
  optimizer = SGD{lr = 0.3},
  planner = "greedy",
  steps = 5, seed = 32,
}
