-- Modules of a list that are recurrent: each step of a scan reads its own module's weights, of which an update makes a stack.
-- The batch is as large as what is carried, so the zeros that enter the scans, forward and backward, have one shape.
-- mesh: dp=2 sharded=1
-- mesh: dp=2 microbatches=2 checkpoint=layer
-- sanitized: dp=2 microbatches=2 checkpoint=layer
-- mesh: microbatches=3 sharded=1 dp=2 checkpoint=layer
-- mesh: pp=2 dp=2 microbatches=2
-- mesh: pp=2 microbatches=4 schedule=zbv_zero_bubble checkpoint=layer
-- mesh: pp=2 microbatches=4 schedule=zbv_zero_bubble checkpoint=selective
local mesh = device_mesh{ {"pp", args.pp or 1}, {"dp", args.dp or 1} }
local WIDTH, LENGTH = 6, 5

local Memory = nn.module("Memory", function(self)
  self.norm, self.rnn = nn.LayerNorm(WIDTH), nn.LSTM(WIDTH, WIDTH, {batch_first = true})
  function self:forward(x)
    local y = self.rnn(self.norm(x))
    return x + y
  end
end)
-- A second carry, which no step reads, and an output that is made of it alone.
local Gated = nn.module("Gated", function(self)
  self.rnn, self.last = nn.GRU(WIDTH, WIDTH, {batch_first = true}), nn.Linear(WIDTH, WIDTH)
  function self:forward(x)
    local y = self.rnn(x)
    local _, z = F.scan(function(s, at)
      local next = (s.sum + at):tanh()
      return {sum = next, last = at:sigmoid()}, next * s.last
    end, {sum = F.zeros{WIDTH, WIDTH}, last = F.zeros{WIDTH, WIDTH}}, y, 1)
    return self.last(z)
  end
end)
local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{Memory(), Memory(), Memory()}
  self.others = nn.ModuleList{Gated(), Gated()}
  self.out = nn.Linear(WIDTH, 4)
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    for _, layer in ipairs(self.others) do x = layer(x) end
    return self.out(x)
  end
end)

local model = Model()
for _, list in ipairs{model.layers, model.others} do
  for _, layer in ipairs(list) do
    if args.sharded then fully_shard(layer, mesh.dp) end
  end
end
if args.sharded then fully_shard(model, mesh.dp) end
if args.pp then
  local split = args.schedule and {"layers.1", "others", "others.1"} or {"others"}
  pipeline(model, mesh.pp, {microbatches = args.microbatches, schedule = args.schedule, split = split})
end

return train{
  model = model,
  batch = distribute({input = randn{WIDTH, LENGTH, WIDTH}, target = randn{WIDTH, LENGTH, 4}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.mse_loss(output, batch.target) end,
  optimizer = SGD{lr = 0.2}, groups = {{match = "**.weight_*", optimizer = LAMB{lr = 0.01}}},
  steps = 3, seed = 5, checkpoint = args.checkpoint,
  microbatches = not args.pp and args.microbatches or nil,
}
