-- What the first stage makes of its parameters, as a table of relative positions is, is read by all stages: ranks get it more
-- than once, from one place, and take it in the order of their stages.
-- mesh: pp=2 schedule=interleaved_1f1b microbatches=4
-- mesh: pp=2 schedule=interleaved_zero_bubble microbatches=3 dp=2
-- mesh: pp=2 schedule=zbv_zero_bubble microbatches=4
-- cuda: pp=2 schedule=interleaved_1f1b microbatches=4
-- cuda: pp=2 schedule=zbv_zero_bubble microbatches=4
-- mesh: pp=4 schedule=1f1b microbatches=4
local mesh = device_mesh{ {"pp", args.pp or 1}, {"dp", args.dp or 1} }
local WIDTH, LENGTH = 6, 4

local Layer = nn.module("Layer", function(self)
  self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
  function self:forward(x, table, first)
    return x + self.b(F.tanh(self.a(x) + table)) * first
  end
end)
local Model = nn.module("Model", function(self)
  self.table = nn.Parameter(randn{LENGTH, WIDTH})
  self.layers = nn.ModuleList{Layer(), Layer(), Layer(), Layer()}
  function self:forward(x)
    local table, first = self.table:tanh(), F.sigmoid(x:mean(-1, true) * self.table:sum())
    for _, layer in ipairs(self.layers) do x = layer(x, table, first) end
    return x
  end
end)

local model = Model()
if args.pp then
  pipeline(model, mesh.pp, {schedule = args.schedule, stages = 4, microbatches = args.microbatches, split = {"layers.1", "layers.2", "layers.3"}})
end
return train{
  model = model,
  batch = distribute({input = randn{8, LENGTH, WIDTH}, target = randn{8, LENGTH, WIDTH}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.mse_loss(output, batch.target) end,
  optimizer = SGD{lr = 0.1}, steps = 3, seed = 5,
}
