-- Two dimensions of the mesh cut one dimension of a tensor: rows over a and b, columns over b and c.
-- mesh: a=2 b=2
-- mesh: a=2 b=3
-- mesh: b=2 c=2
-- mesh: b=2 c=3
-- sanitized: b=2 c=3
-- mesh: a=2 b=2 c=2
local mesh = device_mesh{ {"a", args.a or 1}, {"b", args.b or 1}, {"c", args.c or 1} }

local Model = nn.module("Model", function(self)
  self.up = nn.Linear(6, 13)
  self.down = nn.Linear(13, 7)
  self.last = nn.Linear(7, 3)
  function self:forward(x) return self.last(self.down(self.up(x):tanh()):tanh()) end
end)

local model = parallelize(Model(), mesh.c, {up = Colwise(), down = Rowwise(), last = Colwise()})
parallelize(model, mesh.b, {up = Colwise(), down = Rowwise{output_layouts = Shard(0)}})
local batch = {input = randn{11, 6}, target = randn{11, 3}}
distribute(batch, mesh.a, Shard(0))
distribute(batch, mesh.b, Shard(0))

return train{
  model = model, batch = batch,
  loss = function(output, batch) return (output - batch.target):var() end,
  optimizer = SGD{lr = 0.5},
  steps = 5, seed = 12,
}
