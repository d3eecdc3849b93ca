-- What runs on values that two dimensions of the mesh cut in an order of their own, of which kernels are
-- that get the start of their parts: the upper triangle, random numbers, a table's rows, one that is picked.
-- mesh: a=2 b=2
-- mesh: a=2 b=3
-- mesh: a=3 b=2
local mesh = device_mesh{ {"a", args.a or 1}, {"b", args.b or 1} }
local rows, columns = {Shard(0, 1), Shard(0, 0)}, {Shard(1, 1), Shard(1, 0)}

local Model = nn.module("Model", function(self)
  self.table = nn.Embedding(13, 7)
  self.up = nn.Linear(7, 11)
  self.down = nn.Linear(11, 9)
  function self:forward(x)
    local h = self.table(x):redistribute(mesh, rows)
    h = self.up(h):redistribute(mesh, columns):tanh()
    h = h:triu(-3):redistribute(mesh, rows)
    h = F.dropout(h, 0.3)
    h = self.down(h):redistribute(mesh, columns)
    return F.dropout(h:tril(5), 0.2)
  end
end)

return train{
  model = parallelize(Model(), mesh.b, {table = Rowwise()}),
  batch = distribute({input = randint(13){10}, target = randint(9){10}}, mesh.a, Shard(0)),
  loss = function(output, batch) return F.cross_entropy(output, batch.target) end,
  optimizer = SGD{lr = 0.3},
  steps = 5, seed = 31,
}
