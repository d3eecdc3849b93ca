-- Row after row: softmax, norms and extremes along dimensions that are cut.
-- mesh: dp=2
-- mesh: tp=2
-- mesh: tp=3
-- mesh: tp=7
-- mesh: dp=2 tp=3
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Model = nn.module("Model", function(self)
  self.up = nn.Linear(6, 7)
  self.norm, self.rms = nn.LayerNorm(7), nn.RMSNorm(7)
  self.down = nn.Linear(7, 5)
  function self:forward(x)
    local h = self.up(x)
    local y = self.norm(h) * h:softmax(-1) + self.rms(h:gelu()) - h:log_softmax(0):exp()
    local most, where = h:max(1)
    local spread = h:norm(2, -1, true) + h:norm(1, 0) * h:norm(3) + h:amin(0) - h:amax(1, true) ^ 2
    y = y * (h:logsumexp(1, true):sigmoid() + 0.1 * spread) + most:unsqueeze(1)
    return self.down(y), where
  end
end)

local model = parallelize(Model(), mesh.tp, {
  up = Colwise(), down = Rowwise{output_layouts = Shard(-1)},
})
local batch = distribute({input = randn{9, 6}, target = randint(5){9}}, mesh.dp, Shard(0))

return train{
  model = model, batch = batch,
  forward = function(model, batch) return (model(batch.input)) end,
  loss = function(output, batch)
    local chosen = output:log_softmax(1)
    return F.nll_loss(chosen, batch.target) + output:var(1):mean() + 0.1 * chosen:min()
  end,
  optimizer = AdamW{lr = 0.01, eps = 1e-3},
  steps = 5, seed = 6,
}
