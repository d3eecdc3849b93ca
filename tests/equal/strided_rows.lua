-- Rows that are flattened from a dimension that is cut: the last of four ranks has none of three, in
-- any group. What sums over rows is a kernel's there, not a product's.
-- mesh: dp=4
-- cuda: dp=4
-- mesh: dp=2
local mesh = device_mesh{ {"dp", args.dp or 1} }

local Model = nn.module("Model", function(self)
  self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 5)
  function self:forward(x) return self.last(self.first(x):flatten(0, 1)) end
end)

local model = Model()
return train{
  model = model, batch = distribute({input = randn{4, 3, 8}}, mesh.dp, Shard(1)),
  loss = function(output) return (output^2):mean() end,
  optimizer = SGD{lr = 0.1}, steps = 3,
}
