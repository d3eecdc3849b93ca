-- A list with runs of equal modules, each of which is a loop and an array: two, three unlike these, and one alone; in it a
-- list whose modules begin unlike the others. One run's parameters stay as they are.
-- mesh: tp=2
-- sanitized: tp=2
-- mesh: dp=2 tp=2
-- mesh: dp=3
-- cuda: dp=2 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Plain = nn.module("Plain", function(self)
  self.up, self.down = nn.Linear(6, 12), nn.Linear(12, 6)
  function self:forward(x) return x + self.down(self.up(x):tanh()) end
end)
local Gated = nn.module("Gated", function(self)
  self.gate, self.up, self.down = nn.Linear(6, 8, {bias = false}), nn.Linear(6, 8), nn.Linear(8, 6)
  self.inner = nn.ModuleList{nn.Linear(6, 6), nn.Linear(6, 6, {bias = false}), nn.Linear(6, 6, {bias = false})}
  function self:forward(x)
    x = x + self.down(self.gate(x):silu() * self.up(x))
    for _, layer in ipairs(self.inner) do x = x + layer(x):tanh() end
    return x
  end
end)
local Model = nn.module("Model", function(self)
  self.first = nn.Linear(6, 6)
  self.layers = nn.ModuleList{Plain(), Plain(), Gated(), Gated(), Gated(), Plain()}
  function self:forward(x)
    x = self.first(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return x
  end
end)

local model = Model()
for i = 1, 2 do model.layers[i]:requires_grad_(false) end
return train{
  model = parallelize(model, mesh.tp, {
    ["layers.*.up"] = Colwise(), ["layers.*.gate"] = Colwise(), ["layers.*.down"] = Rowwise(),
  }),
  batch = distribute({input = randn{6, 6}, target = randn{6, 6}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return ((output - batch.target)^2):mean() end,
  optimizer = Adafactor{lr = 0.02}, steps = 4, clip = 1,
}
