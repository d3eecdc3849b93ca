-- Layers that square: a large input becomes infinite in the second of them.
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local Block = nn.module("Block", function(self)
  self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)
  function self:forward(x) return self.down(self.up((x * x):cumsum(1)):tanh()) + x * x end
end)
local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{Block(), Block(), Block(), Block()}
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return x
  end
end)
local model = parallelize(Model(), mesh.tp, {["layers.*.up"] = Colwise(), ["layers.*.down"] = Rowwise()})
if args.dtype then model = mixed_precision(model, {param_dtype = args.dtype}) end
return train{
  model = model, batch = distribute({input = randn{4, 6}}, mesh.dp, Shard(0)),
  loss = function(output) return output:to("float32"):tanh():mean() end,
  optimizer = SGD{lr = 0}, steps = 5, drop_last = true,
}
