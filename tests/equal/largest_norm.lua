-- Gradients clipped by their largest element, of parameters that ranks have whole, in parts, in stages and not at all.
-- mesh: dp=2 tp=2 sharded=1
-- mesh: pp=2 dp=3 sharded=1
-- cuda: pp=2 dp=3 sharded=1
local mesh = device_mesh{ {"pp", args.pp or 1}, {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Block = nn.module("Block", function(self)
  self.norm, self.up, self.down = nn.LayerNorm(4), nn.Linear(4, 10), nn.Linear(10, 4)
  function self:forward(x) return x + self.down(F.relu(self.up(self.norm(x)))) end
end)
local Model = nn.module("Model", function(self)
  self.layers, self.out = nn.ModuleList{Block(), Block()}, nn.Linear(4, 3)
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.out(x)
  end
end)

local model = parallelize(Model(), mesh.tp, {["layers.*"] = {up = Colwise(), down = Rowwise()}})
if args.sharded then
  for _, layer in ipairs(model.layers) do fully_shard(layer, mesh.dp) end
  fully_shard(model, mesh.dp)
end
if args.pp then pipeline(model, mesh.pp, {microbatches = 2}) end

return train{
  model = model, batch = distribute({x = randn{12, 4}, y = randn{12, 3}}, mesh.dp, Shard(0)),
  forward = function(model, batch) return model(batch.x) end,
  loss = function(output, batch) return F.mse_loss(output, batch.y) * 10 end,
  optimizer = SGD{lr = 0.5}, groups = {{match = "out.*", optimizer = LAMB{lr = 0.02}}},
  clip = 0.3, norm_type = "inf", steps = 4, seed = 2,
}
