-- mesh: tp=2
-- mesh: dp=2
-- mesh: dp=2 tp=2
-- mesh: dp=3
-- sanitized: dp=2 tp=2
-- cuda: dp=2 tp=2
-- Frozen parameters: some layers of a list, and some parameters of every layer of another; fully sharded, clipped.
local tp, dp = args.tp or 1, args.dp or 1
local mesh = device_mesh{ {"dp", dp}, {"tp", tp} }
local Block = nn.module("Block", function(self)
  self.norm, self.up, self.down = nn.RMSNorm(12), nn.Linear(12, 18), nn.Linear(18, 12)
  function self:forward(x) return x + self.down(F.gelu(self.up(self.norm(x)))) end
end)
local Model = nn.module("Model", function(self)
  self.embed = nn.Embedding(30, 12)
  self.low  = nn.ModuleList{Block(), Block(), Block()}
  self.high = nn.ModuleList{Block(), Block(), Block()}
  self.output = nn.Linear(12, 7)
  function self:forward(ids)
    local x = self.embed(ids)
    for _, layer in ipairs(self.low) do x = layer(x) end
    for _, layer in ipairs(self.high) do x = layer(x) end
    return self.output(x)
  end
end)
local model = parallelize(Model(), mesh.tp, {
  ["embed"] = Rowwise(),
  ["low.*.up|high.*.up"]     = Colwise(),
  ["low.*.down|high.*.down"] = Rowwise(),
})
freeze(model, {"embed", "low.[0-1]"})
for _, layer in ipairs(model.high) do
  layer:requires_grad_(false)
  layer.norm.weight:requires_grad_(true)
  layer.down:requires_grad_()
end
for _, list in ipairs{model.low, model.high} do
  for _, layer in ipairs(list) do fully_shard(layer, mesh.dp) end
end
fully_shard(model, mesh.dp)
return train{
  model     = model,
  batch     = distribute({ input = randint(30){12, 5}, target = randint(7){12, 5} }, mesh.dp, Shard(0)),
  loss      = function(output, batch) return F.cross_entropy(output, batch.target, {label_smoothing = 0.1}) end,
  optimizer = AdamW{ lr = 1e-2 },
  accumulate = args.accumulate or 1,
  clip      = 0.5,
  steps     = 5,
}
