-- args: -D dp=2 -D tp=2
-- A diffusion model that draws its noise, its steps and the code of an encoder itself, in layers of a list and recomputed.
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local B, W = 8, 6
local Layer = nn.module("Layer", function(self)
  self.up, self.down = nn.Linear(W, 8), nn.Linear(8, W)
  function self:forward(x) return x + self.down(F.gelu(self.up(x)) + 0.1 * F.randn_like(self.up(x))) end
end)
local Model = nn.module("Model", function(self)
  self.mean, self.spread = nn.Linear(W, W), nn.Linear(W, W)
  self.layers = nn.ModuleList{Layer(), Layer(), Layer()}
  function self:forward(x, noise)
    local level = F.rand{B, 1}
    local code = self.mean(x) + F.exp(0.5 * self.spread(x)) * F.randn_like(x)
    local h = code * (1 - level) + noise * level
    for _, layer in ipairs(self.layers) do h = layer(h) end
    return h - noise + 0.01 * F.randint(0, 1000, {B, 1}):float()
  end
end)
local model = parallelize(Model(), mesh.tp, {["layers.*.up"] = Colwise(), ["layers.*.down"] = Rowwise()})
replicate(model, mesh.dp)
return train{
  model = model, batch = distribute({input = randn{B, W}, noise = randn{B, W, fresh = true}}, mesh.dp, Shard(0)),
  forward = function(model, batch) return model(batch.input, batch.noise) end,
  loss = function(output) return output:square():mean() end,
  checkpoint = args.checkpoint, microbatches = args.microbatches,
  optimizer = AdamW{lr = 0.01}, steps = 4, seed = 3,
}
