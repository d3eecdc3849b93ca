-- A list of modules begins with a view of what the batch holds.
-- mesh: dp=2
-- mesh: dp=3
local mesh = device_mesh{ {"dp", args.dp or 1} }

local Twice = nn.module("Twice", function(self)
  function self:forward(x) return x + x end
end)

local Model = nn.module("Model", function(self)
  self.blocks, self.last = nn.ModuleList{Twice(), Twice()}, nn.Linear(8, 3)
  function self:forward(x)
    local y = x:transpose(1, 2)
    for _, block in ipairs(self.blocks) do y = block(y) end
    return self.last(y)
  end
end)

local model = Model()
return train{
  model = model, batch = distribute({input = randn{6, 8, 1}}, mesh.dp, Shard(0)),
  loss = function(output) return (output^2):mean() end,
  optimizer = SGD{lr = 0.1}, steps = 3,
}
