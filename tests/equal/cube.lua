-- A mesh of three dimensions: rows over a, the sequence over b, the hidden units over c.
-- mesh: a=2 b=2 c=2
-- mesh: a=2 c=3
-- mesh: b=3 c=2
-- mesh: a=3 b=2
-- mesh: b=7
local mesh = device_mesh{ {"a", args.a or 1}, {"b", args.b or 1}, {"c", args.c or 1} }

local Model = nn.module("Model", function(self)
  self.up = nn.Linear(6, 7)
  self.down = nn.Linear(7, 5)
  self.last = nn.Linear(5, 3)
  function self:forward(x) return self.last(self.down(self.up(x):tanh()):sigmoid()) end
end)

local model = parallelize(Model(), mesh.c, {up = Colwise(), down = Rowwise()})
parallelize(model, mesh.b, {last = Colwise()})
local batch = {input = randn{4, 5, 6}, target = randn{4, 5, 3}}
distribute(batch, mesh.a, Shard(0))
distribute(batch, mesh.b, Shard(1))

return train{
  model = model, batch = batch,
  loss = function(output, batch) return (output - batch.target):var() end,
  optimizer = SGD{lr = 0.5},
  steps = 5, seed = 11,
}
