-- Gradients that take two collectives: what tp cuts is multiplied by parameters of the model's own that
-- are not cut over it, so their gradients are reduced over dp and then gathered over tp. On GPUs the one
-- begins as soon as the other ends, and writes nothing that anything before it still reads.
-- mesh: dp=2 tp=2
-- cuda: dp=2 tp=2
-- mesh: dp=3 tp=2
local width, hidden = 4, 8
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Block = nn.module("Block", function(self)
  self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
  self.scale = nn.Parameter{4, init = nn.init.uniform(0.5, 1.5)}
  function self:forward(x)
    local h = F.silu(self.up(x)):unflatten(-1, 4, -1) * self.scale:view(4, 1)
    return x + self.down(h:flatten(-2))
  end
end)

local Net = nn.module("Net", function(self)
  self.layers = nn.ModuleList{Block(), Block()}
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return x
  end
end)

local model = parallelize(Net(), mesh.tp, {
  ["layers.*.up"] = Colwise(), ["layers.*.down"] = Rowwise(),
})
fully_shard(model, mesh.dp)

return train{
  model = model,
  batch = distribute({input = randn{8, 2, width}, target = randn{8, 2, width}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.mse_loss(output, batch.target) end,
  optimizer = AdamW{lr = 1e-2},
  steps = 3,
}
