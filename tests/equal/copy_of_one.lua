-- The batch is cut along a dimension of size 1, and packed to be moved to another.
-- mesh: dp=4
local mesh = device_mesh{ {"dp", args.dp or 1} }

local Model = nn.module("Model", function(self)
  self.output = nn.Linear(16, 16)
  function self:forward(x) return self.output(x) end
end)

return train{
  model = Model(),
  batch = distribute({input = randn{3, 1, 16}, target = randn{3, 1, 16}}, mesh.dp, Shard(1)),
  loss = function(output, batch) return (output - batch.target):var() end,
  optimizer = SGD{lr = 0.1}, steps = 3, planner = "greedy",
}
