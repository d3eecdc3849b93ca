-- One gradient for several parameters, which travels on as well: sums of parameters that meet a batch
-- which is cut, once in the model and once in each of its layers; a parameter used in several places.
-- mesh: dp=2
-- mesh: dp=3
-- mesh: dp=2 tp=2
-- mesh: dp=2 tp=3
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local function factor() return nn.Parameter{6, init = nn.init.uniform(0.5, 1.5)} end

local Layer = nn.module("Layer", function(self)
  self.p, self.q = factor(), factor()
  self.up = nn.Linear(6, 7)
  self.down = nn.Linear(7, 6)
  function self:forward(x) return x + self.down(self.up((self.p + self.q) * x):tanh()) end
end)

local Model = nn.module("Model", function(self)
  self.p, self.q, self.r = factor(), factor(), factor()
  self.idle = nn.Parameter(ones{3})
  self.s = nn.Linear(6, 6, {bias = false})
  self.layers = nn.ModuleList{Layer(), Layer(), Layer()}
  function self:forward(x)
    local scale = self.p + self.q + self.s(self.r:tanh())
    local h = scale * x
    for _, layer in ipairs(self.layers) do h = layer(h) end
    return h * (self.r - self.r * self.r)
  end
end)

return train{
  model = parallelize(Model(), mesh.tp, {["layers.*.up"] = Colwise(), ["layers.*.down"] = Rowwise()}),
  batch = distribute({input = randn{5, 6}, target = randn{5, 6}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return ((output - batch.target)^2):mean() end,
  optimizer = SGD{lr = 0.1},
  steps = 5, seed = 20,
}
