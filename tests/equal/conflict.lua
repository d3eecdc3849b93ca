-- Styles that do not fit each other: batch and weights are cut over the same dimension of the mesh, and
-- neighbours in ways that need moves between them.
-- mesh: tp=2
-- mesh: tp=3
-- mesh: tp=6
-- mesh: dp=2 tp=2
-- cuda: dp=2 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Model = nn.module("Model", function(self)
  self.a = nn.Linear(6, 7)
  self.b = nn.Linear(7, 8)
  self.c = nn.Linear(8, 5)
  self.d = nn.Linear(5, 3)
  function self:forward(x)
    local h = self.a(x):tanh()
    return self.d(self.c(self.b(h):tanh()):tanh())
  end
end)

local model = parallelize(Model(), mesh.tp, {
  a = Rowwise(), b = Colwise(), c = Colwise(), d = Rowwise{output_layouts = Shard(-1)},
})
parallelize(model, mesh.dp, {b = Colwise(), d = Rowwise()})
local batch = distribute({input = randn{9, 6}, target = randn{9, 3}}, mesh.dp, Shard(0))
distribute(batch.input, mesh.tp, Shard(0))
distribute(batch.target, mesh.tp, Shard(1))

return train{
  model = model, batch = batch,
  loss = function(output, batch) return (output - batch.target):var() end,
  optimizer = AdamW{lr = 0.05, eps = 1e-3},
  steps = 5, seed = 17,
}
