-- Moves of a value whose second dimension is outermost in memory: gathers and scatters along it, slices of
-- it along another, and sums of which one rank has the whole, or each a part.
-- mesh: b=2
-- mesh: a=2 b=2
-- mesh: a=2 b=3
-- sanitized: a=2 b=3
-- mesh: a=3 b=2
-- cuda: a=3 b=2
local mesh = device_mesh{ {"a", args.a or 1}, {"b", args.b or 1} }

local Model = nn.module("Model", function(self)
  self.up, self.down = nn.Linear(20, 24), nn.Linear(24, 20, {bias = false})
  function self:forward(x)
    x = x:redistribute(mesh.b, Shard(1)):tanh():redistribute(mesh.b, Replicate())
    local h = self.up(x)
    local boxes = h:redistribute(mesh, {Shard(0), Shard(2)}):sigmoid()
    local sums = h:redistribute(mesh.b, Partial()):redistribute(mesh.b, Shard(1))
    local parts = boxes:redistribute(mesh, {Replicate(), Shard(1)}) * sums
    local pending = parts:redistribute(mesh.b, Partial())
    local y = pending:redistribute(mesh.b, Shard(1)):tanh():redistribute(mesh.b, Replicate())
    return self.down(y)
  end
end)

return train{
  model = Model(),
  batch = {input = randn{5, 7, 20}, target = randn{5, 7, 20}},
  loss = function(output, batch) return ((output - batch.target)^2):mean() end,
  optimizer = SGD{lr = 0.3},
  steps = 5, seed = 11,
}
