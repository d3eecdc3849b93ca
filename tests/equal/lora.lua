-- mesh: tp=2
-- mesh: dp=2
-- mesh: dp=2 tp=2
-- mesh: tp=3
-- sanitized: dp=2 tp=2
-- cuda: dp=2 tp=2
-- Adapters of Linear modules that are cut by columns and by rows, and of whole ones, with dropout; fully sharded.
local tp, dp = args.tp or 1, args.dp or 1
local mesh = device_mesh{ {"dp", dp}, {"tp", tp} }
local Block = nn.module("Block", function(self)
  self.norm, self.up, self.down = nn.LayerNorm(12), nn.Linear(12, 22), nn.Linear(22, 12)
  function self:forward(x) return x + self.down(F.gelu(self.up(self.norm(x)))) end
end)
local Model = nn.module("Model", function(self)
  self.embed = nn.Embedding(30, 12)
  self.layers = nn.ModuleList{Block(), Block(), Block()}
  self.output = nn.Linear(12, 7, false)
  function self:forward(ids)
    local x = self.embed(ids)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.output(x)
  end
end)
local model = Model()
local function cut()
  parallelize(model, mesh.tp, {
    ["layers.*.up"]   = Colwise(),
    ["layers.*.down"] = Rowwise(),
  })
end
if args.order ~= "after" then cut() end
lora(model, {rank = 3, alpha = 6, match = {"up", "layers.*.down", "output"}, dropout = 0.1})
for _, layer in ipairs(model.layers) do fully_shard(layer, mesh.dp) end
fully_shard(model, mesh.dp)
if args.order == "after" then cut() end
return train{
  model     = model,
  batch     = distribute({ input = randint(30){12, 5}, target = randint(7){12, 5} }, mesh.dp, Shard(0)),
  loss      = function(output, batch) return F.cross_entropy(output, batch.target) end,
  optimizer = AdamW{ lr = 3e-2 },
  clip      = 0.5,
  steps     = 5,
}
