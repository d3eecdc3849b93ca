-- Small gradients of a list's modules are summed behind their loop, and the buckets are smaller than the
-- list: one has a module's gradient and what follows the list, and the other module's is summed alone.
-- mesh: dp=2
-- mesh: dp=3
local mesh = device_mesh{ {"dp", args.dp or 1} }

local Block = nn.module("Block", function(self)
  self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)
  function self:forward(x) return x + self.down(self.up(x):tanh()) end
end)
local Model = nn.module("Model", function(self)
  self.first, self.layers = nn.Linear(4, 4), nn.ModuleList{Block(), Block()}
  self.output = nn.Linear(4, 4, {bias = false})
  function self:forward(x)
    x = self.first(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.output(x)
  end
end)

return train{
  model = Model(), batch = distribute({input = randn{6, 4}}, mesh.dp, Shard(0)),
  loss = function(output) return (output^2):mean() end,
  optimizer = SGD{lr = 0.1}, steps = 3,
  bucket_mb = 0.0001,
}
