-- Two Linear modules a layer, a Linear behind, and what trains of them.
--   -D how=lora   adapters of rank 3 in all Linear modules
--   -D how=bias   all but the biases and the last module is frozen
--   -D how=none   all parameters are trained
--   -D smooth=0.1 -D z=1e-2   the loss has label smoothing and a z-loss
local D, H = 12, 22
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local Block = nn.module("Block", function(self)
  self.norm, self.up, self.down = nn.LayerNorm(D), nn.Linear(D, H), nn.Linear(H, D)
  function self:forward(x) return x + self.down(F.gelu(self.up(self.norm(x)))) end
end)
local Model = nn.module("Model", function(self)
  self.embed = nn.Embedding(30, D)
  self.layers = nn.ModuleList{Block(), Block(), Block()}
  self.output = nn.Linear(D, 7, false)
  function self:forward(ids)
    local x = self.embed(ids)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.output(x)
  end
end)

local model = parallelize(Model(), mesh.tp, {
  ["layers.*.up"] = Colwise(), ["layers.*.down"] = Rowwise(), output = Colwise(),
})
if args.how == "lora" then
  lora(model, {rank = 3, alpha = args.alpha or 6, match = {"up|layers.*.down", "output"}, dropout = args.dropout or 0})
elseif args.how == "bias" then
  freeze(model)
  unfreeze(model, {"**.bias", "output"})
end
for _, layer in ipairs(model.layers) do fully_shard(layer, mesh.dp) end
fully_shard(model, mesh.dp)

local names = {
  ["embed.weight"] = "model.embed_tokens.weight",
  ["layers.*.norm.*"] = "model.layers.*.norm.*",
  ["layers.*.up.*"] = "model.layers.*.mlp.up_proj.*",
  ["layers.*.down.*"] = "model.layers.*.mlp.down_proj.*",
  ["output.weight"] = "lm_head.weight",
}
local batch = distribute({ input = randint(30){12, 5}, target = randint(-100, 7){12, 5} }, mesh.dp, Shard(0))
if args.infer then
  return infer{ model = model, batch = {input = batch.input}, names = names }
end
return train{
  model = model, batch = batch, names = names,
  loss = function(output, batch)
    return F.cross_entropy(output, batch.target, {label_smoothing = args.smooth or 0, z_loss = args.z})
  end,
  optimizer = AdamW{ lr = 1e-2 }, clip = 0.5, steps = 20, grad_norm = true,
}
