-- args: --target cuda -D tp=2
-- A step of four micro-batches: whole gradients of layers are added up, and each layer's are reduced beside the backward
-- of the layer before it in the last micro-batch alone.
local Block = nn.module("Block", function(self)
  self.norm, self.up, self.down = nn.RMSNorm(2048), nn.Linear(2048, 8192, {bias = false}), nn.Linear(8192, 2048, {bias = false})
  function self:forward(x) return x + self.down(F.silu(self.up(self.norm(x)))) end
end)
local Model = nn.module("Model", function(self)
  self.first = nn.Linear(2048, 2048, {bias = false})
  self.layers = nn.ModuleList{Block(), Block(), Block(), Block(), Block(), Block()}
  self.norm = nn.RMSNorm(2048)
  function self:forward(x)
    x = self.first(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.norm(x)
  end
end)
local mesh = device_mesh{ {"dp", 8}, {"tp", args.tp}, device = "H100" }
local model = parallelize(Model(), mesh.tp, {["layers.*"] = {up = Colwise(), down = Rowwise()}})
for _, layer in ipairs(model.layers) do fully_shard(layer, mesh.dp, {reshard_after_forward = false}) end
fully_shard(model, mesh.dp)
return train{
  model = model,
  batch = distribute({input = randn{64, 1024, 2048}, target = randn{64, 1024, 2048}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.mse_loss(output, batch.target) end,
  optimizer = AdamW{}, microbatches = 4, reduce_each_batch = false, steps = 1,
}
