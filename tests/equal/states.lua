-- States with the names of other members of a rank's memory (Adagrad's is `sum`), beside sums over batches; and states that
-- the parameters of some modules of a list have, and those of others do not.
-- mesh: dp=2 accumulate=2
-- mesh: dp=2 pp=2 microbatches=2
-- cuda: dp=2 pp=2 microbatches=2
-- mesh: dp=3 microbatches=2
local mesh = device_mesh{ {"pp", args.pp or 1}, {"dp", args.dp or 1} }
local WIDTH = 8

local Longest = optimizer{
  name = "Longest", defaults = {lr = 0.02}, state = function() return {{"w"}, "grad"} end,
  update = function(p, g, state, o)
    local most, last = state.w:maximum(g:norm()), 0.5 * state.grad + g
    return p - o.lr * last / (most + 1e-2), {w = most, grad = last}
  end,
}

local Block = nn.module("Block", function(self)
  self.norm, self.up, self.down = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, 12, {bias = false}), nn.Linear(12, WIDTH, {bias = false})
  function self:forward(x) return x + self.down(self.up(self.norm(x)):tanh()) end
end)
local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{Block(), Block(), Block(), Block(), Block()}
  self.out = nn.Linear(WIDTH, 3)
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.out(x)
  end
end)

local model = Model()
if args.dp then
  for _, layer in ipairs(model.layers) do fully_shard(layer, mesh.dp) end
  fully_shard(model, mesh.dp)
end
if args.pp then pipeline(model, mesh.pp, {microbatches = args.microbatches, split = {"layers.3"}}) end

return train{
  model = model, batch = distribute({x = randn{12, WIDTH}, y = randn{12, 3}}, mesh.dp, Shard(0)),
  forward = function(model, batch) return model(batch.x) end,
  loss = function(output, batch) return F.mse_loss(output, batch.y) end,
  optimizer = Adagrad{lr = 0.05},
  groups = {{match = "**norm.weight", optimizer = Longest{}}, {match = "layers.0.*.weight"}, {match = "layers.*.*.weight", optimizer = Longest{}}},
  steps = 3, seed = 3, accumulate = args.accumulate, microbatches = not args.pp and args.microbatches or nil,
}
