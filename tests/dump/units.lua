-- args: -D copies=2 -D dp=2 -D tp=2
-- The units of fully_shard: two layers, and the rest, in which a weight is used at both ends of the model.
local mesh = device_mesh{ {"copies", args.copies}, {"dp", args.dp}, {"tp", args.tp} }

local Layer = nn.module("Layer", function(self)
  self.up, self.down = nn.Linear(8, 12, {bias = false}), nn.Linear(12, 8)
  function self:forward(x) return x + self.down(F.relu(self.up(x))) end
end)

local Model = nn.module("Model", function(self)
  self.table = nn.Embedding(9, 8)
  self.layers = nn.ModuleList{Layer(), Layer()}
  self.norm = nn.RMSNorm(8)
  function self:forward(ids)
    local x = self.table(ids)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return F.linear(self.norm(x), self.table.weight)
  end
end)

local model = parallelize(Model(), mesh.tp, {["layers.*"] = {up = Colwise(), down = Rowwise()}})
local over = mesh{"copies", "dp"}
fully_shard(model.table, over, {param_dtype = "bfloat16", reduce_dtype = "float32"})
for _, layer in ipairs(model.layers) do
  fully_shard(layer, over, {param_dtype = "bfloat16", reduce_dtype = "bfloat16", shard_dim = -1})
end
fully_shard(model, over, {reshard_after_forward = false})

return train{
  model = model,
  batch = distribute({input = randint(9){8, 4}, target = randint(9){8, 4}}, over, {Shard(0), Shard(0)}),
  loss = function(output, batch) return F.cross_entropy(output:to("float32"), batch.target) end,
  optimizer = AdamW{},
  steps = 1,
}
