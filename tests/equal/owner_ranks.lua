-- Updates whose matrices are whole on owner ranks: more layers than an operation has inputs, one of which is unlike
-- the others; operations before, on owners and behind; a matrix alone; a projection in parts, each with an owner.
-- mesh: tp=2 dp=2
-- mesh: tp=2 microbatches=3
-- mesh: tp=2 dp=2 microbatches=3
-- sanitized: tp=2 dp=2
-- cuda: tp=2 dp=2
-- mesh: dp=5
-- mesh: dp=3 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Layer = nn.module("Layer", function(self, i)
  self.w1, self.w2 = nn.Linear(6, 5, {bias = false}), nn.Linear(5, 6)
  self.gates, self.down = nn.Linear(6, 8, {bias = false}), nn.Linear(4, 6)
  function self:forward(x)
    local gate, up = self.gates(x):chunk(2, -1)
    local to = self.w2(self.w1(x):tanh()) + self.down(gate:sigmoid() * up)
    return x + (i == 2 and to:sin() or to)
  end
end)

local Model = nn.module("Model", function(self)
  local layers = {}
  for i = 1, 14 do layers[i] = Layer(i) end
  self.layers = nn.ModuleList(layers)
  self.head = nn.Linear(6, 4)
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.head(x)
  end
end)

-- At home: lengths of rows and columns, and a product; behind: the length of what came back. Its number of the step
-- has a name that the kernel of an update has itself.
local Balanced = optimizer{
  name = "Balanced", defaults = {lr = 0.04}, state = {"average"},
  update = function(p, g, state, o)
    local rate = o.named("clip", o.lr / 2)
    if p:dim() ~= 2 then return p - rate * g, {} end
    local average = state.average:lerp(g, 0.5)
    local x = (average * 2):to_owner()
    local rows, columns = x:norm(2, -1, true) + 1e-2, (x * x):sum(0):sqrt() + 1e-2
    local to = (x / rows / columns + x:matmul(x:t()):matmul(x) / x:norm():maximum(1)):cut()
    return p - rate * to / to:norm():maximum(0.1), {average = average}
  end,
}

local model = parallelize(Model(), mesh.tp, {
  ["layers.*.w1"] = Colwise(), ["layers.*.w2|layers.*.down"] = Rowwise(), ["layers.*.gates"] = Colwise{parts = 2},
})
fully_shard(model, mesh.dp)

return train{
  model = model,
  batch = distribute({input = randn{30, 6}, target = randn{30, 4}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return ((output - batch.target)^2):mean() end,
  optimizer = Balanced{},
  groups = {{match = "layers.*.w1.weight|**.gates.*|head.weight", optimizer = Muon{lr = 0.02, dtype = "float32"}}},
  clip = 0.5, steps = 5, seed = 8, microbatches = args.microbatches,
}
