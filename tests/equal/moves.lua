-- The plan moves what runs between the layers from one layout to another, on both dimensions of the mesh
-- at once: cut in an order of its own, along one dimension, along two, pending, back to where it was.
-- mesh: a=2
-- mesh: b=3
-- mesh: a=2 b=2
-- mesh: a=2 b=3
-- sanitized: a=2 b=3
-- mesh: a=3 b=2
-- cuda: a=3 b=2
-- mesh: a=2 b=4
local mesh = device_mesh{ {"a", args.a or 1}, {"b", args.b or 1} }

local Model = nn.module("Model", function(self)
  self.up = nn.Linear(6, 11)
  self.middle = nn.Linear(11, 7)
  self.down = nn.Linear(7, 5, {bias = false})
  self.last = nn.Linear(5, 3)
  function self:forward(x)
    x = x:redistribute(mesh, {Shard(1), Shard(0)})
    local h = self.up(x):redistribute(mesh, {Shard(0, 1), Shard(0, 0)}):tanh()
    h = self.middle(h:redistribute(mesh, {Shard(1), Shard(1)})):redistribute(mesh, {Shard(1), Shard(0)})
    h = h:sigmoid():redistribute(mesh, {Shard(1, 1), Shard(1, 0)})
    h = self.down(h):redistribute(mesh.b, Shard(0)):redistribute(mesh, {Shard(0, 1), Shard(0)})
    h = (h * h):redistribute(mesh, {Partial(), Shard(1)}):redistribute(mesh, {Shard(0), Replicate()})
    return self.last(h):redistribute(mesh, {Shard(0), Shard(0)})
  end
end)

return train{
  model = parallelize(Model(), mesh.b, {up = Colwise(), middle = Rowwise{output_layouts = Partial()}}),
  batch = distribute({input = randn{9, 6}, target = randn{9, 3}}, mesh.a, Shard(0)),
  loss = function(output, batch) return ((output - batch.target)^2):mean() end,
  optimizer = SGD{lr = 0.3},
  steps = 5, seed = 31,
}
