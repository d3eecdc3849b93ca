-- Gradients that several batches have added up are summed over one dimension of the mesh after the other.
-- mesh: cp=2 tp=2 dp=2 pp=2
local mesh = device_mesh{ {"cp", args.cp or 1}, {"tp", args.tp or 1}, {"dp", args.dp or 1}, {"pp", args.pp or 1} }

local Block = nn.module("Block", function(self)
  function self:forward(x)
    return x + (x - x):redistribute(mesh, {Shard(2), Shard(-2), Replicate(), false})
  end
end)
local Model = nn.module("Model", function(self)
  self.layers, self.output = nn.ModuleList{Block()}, nn.Linear(6, 2)
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.output(x)
  end
end)

return train{
  model = Model(),
  batch = distribute({input = randn{2, 2, 6}}, mesh.dp, Shard(2)),
  loss = function(output) return output:var() end,
  optimizer = SGD{lr = 0.1}, steps = 3, accumulate = 2, planner = "greedy",
}
