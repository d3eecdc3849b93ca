-- Products in pieces of which some ranks have no terms: the dimension that is summed is smaller than the
-- mesh is along it. Each piece of their zeros lies in several blocks: between those of the other pieces, of
-- one product for each row too.
-- mesh: tp=2 b=3 pieces=2
-- sanitized: tp=2 b=3 pieces=2
-- cuda: tp=2 b=3 pieces=2
-- mesh: tp=3 b=4 pieces=2
local mesh = device_mesh{ {"tp", args.tp or 1}, {"b", args.b or 1} }

local Model = nn.module("Model", function(self)
  self.rows = nn.Parameter(distribute(randn{5, 2}, mesh.b, Shard(1)))
  self.columns = nn.Parameter(distribute(randn{4, 2}, mesh.b, Shard(1)))
  function self:forward(x)
    x = x:tanh():redistribute(mesh, {Shard(0), Shard(1)}):redistribute(mesh, {Replicate(), Shard(1)})
    local rows, columns = F.linear(x, self.rows), F.einsum("ak,nk->na", x, self.columns)
    return rows:sum(1) + columns:square():sum(0)
  end
end)

local model = parallelize(Model(), mesh.tp, {}, {async_tp = args.pieces})
return train{
  model = model, batch = {input = randn{24, 2}},
  loss = function(output) return output:var() end,
  optimizer = SGD{lr = 0.1}, steps = 3,
}
