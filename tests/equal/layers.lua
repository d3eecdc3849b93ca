-- Equal layers in a list, each with a gate as in Llama and a residual past it.
-- mesh: tp=2
-- sanitized: tp=2
-- mesh: tp=3
-- cuda: tp=3
-- mesh: tp=4
-- mesh: dp=2
-- mesh: dp=2 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Layer = nn.module("Layer", function(self, dim, hidden)
  self.w1 = nn.Linear(dim, hidden, {bias = false})
  self.w2 = nn.Linear(hidden, dim, {bias = false})
  self.w3 = nn.Linear(dim, hidden)
  function self:forward(x) return x + self.w2(self.w1(x):silu() * self.w3(x)) end
end)

local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{Layer(6, 13), Layer(6, 13), Layer(6, 13), Layer(6, 13)}
  self.head = nn.Linear(6, 2)
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.head(x)
  end
end)

return train{
  model = parallelize(Model(), mesh.tp, {
    ["layers.*.w[13]"] = Colwise(), ["layers.*.w2"] = Rowwise(),
  }),
  batch = distribute({input = randn{5, 6}, target = randn{5, 2}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return ((output - batch.target)^2):mean() end,
  optimizer = AdamW{lr = 0.02, eps = 1e-3, weight_decay = 0.1},
  steps = 5, seed = 8,
}
