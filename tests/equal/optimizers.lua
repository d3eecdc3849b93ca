-- Optimizers that look at the whole of a parameter, each on a group: with clipping, a moving average, accumulated
-- batches, frozen parameters, and states of another shape.
-- mesh: tp=2 dp=2
-- sanitized: tp=2 dp=2
-- cuda: tp=2 dp=2
-- mesh: dp=4
-- mesh: tp=3
-- mesh: dp=3 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Layer = nn.module("Layer", function(self)
  self.w1, self.w2 = nn.Linear(6, 13, {bias = false}), nn.Linear(13, 6)
  self.scale = nn.Parameter(ones{6})
  function self:forward(x) return x + self.w2(self.w1(x):silu()) * self.scale end
end)

local Model = nn.module("Model", function(self)
  self.first = nn.Linear(6, 6)
  self.layers = nn.ModuleList{Layer(), Layer(), Layer()}
  self.head = nn.Linear(6, 2)
  function self:forward(x)
    x = self.first(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.head(x)
  end
end)

-- Its state looks at columns, and is read and written by operations alone.
local Columns = optimizer{
  name = "Columns", defaults = {lr = 0.02},
  state = function(_, shape) return {{"most", {1, shape[2]}}, "last"} end,
  update = function(p, g, state, o)
    local most = (0.5 * state.most):maximum(g:abs():amax(0, true))
    local whole = (state.last * state.last):mean()
    return p - o.lr * g / (most + 1e-2) - o.lr * whole * p, {most = most, last = g}
  end,
}

local model = parallelize(Model(), mesh.tp, {["layers.*.w1"] = Colwise(), ["layers.*.w2"] = Rowwise()})
freeze(model, {"first.bias"})
for _, layer in ipairs(model.layers) do fully_shard(layer, mesh.dp) end
fully_shard(model, mesh.dp)

return train{
  model = model,
  batch = distribute({input = randn{12, 6}, target = randn{12, 2}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return ((output - batch.target)^2):mean() end,
  optimizer = Adafactor{lr = 0.02},
  groups = {
    {match = "layers.*.w1.weight", optimizer = Muon{lr = 0.02, dtype = "float32"}},
    {match = "layers.*.w2.weight", optimizer = Columns{}},
    {match = "layers.*.scale|head.weight", optimizer = LAMB{lr = 0.01, eps = 1e-3}},
    {match = "layers.*.bias|**.w2.bias", optimizer = AdamW{lr = 0.01, eps = 1e-3}},
  },
  clip = 0.5, ema = 0.5, accumulate = 2, steps = 5, seed = 8,
}
