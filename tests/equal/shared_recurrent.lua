-- A recurrent module that all stages share, and a scan that reads what the first stage makes. Weights, also gathered ones, are
-- received before a scan, whose steps are alike. Terms of a weight's gradient that stages hand on are added up before a move
-- that the last scan needs, so one value has terms of two stages.
-- mesh: pp=2 tp=2 microbatches=2
-- mesh: pp=3 tp=2 microbatches=3
-- mesh: pp=2 dp=2 microbatches=2 zero=1
-- mesh: pp=2 dp=2 microbatches=3 sharded=1
-- cuda: pp=2 dp=2 microbatches=3 sharded=1
local mesh = device_mesh{ {"pp", args.pp or 1}, {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local WIDTH, LENGTH = 6, 4

local Block = nn.module("Block", function(self)
  self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10), nn.Linear(10, WIDTH)
  function self:forward(x) return x + self.down(F.gelu(self.up(self.norm(x)))) end
end)
local Model = nn.module("Model", function(self)
  self.rnn = nn.LSTM(WIDTH, 3, 1, {batch_first = true, bidirectional = true})
  self.scale = nn.Parameter(randn{WIDTH})
  self.layers = nn.ModuleList{Block(), Block(), Block()}
  function self:forward(x)
    local first = x:mean(1) * self.scale
    for _, layer in ipairs(self.layers) do
      x = layer(x)
      local y = self.rnn(x)
      x = x + y
    end
    local _, y = F.scan(function(carried, at)
      local next = (carried + at * first):tanh()
      return next, next * first
    end, first, x, 1)
    return y
  end
end)

local model = parallelize(Model(), mesh.tp, {
  ["layers.*.up"] = Colwise(), ["layers.*.down"] = Rowwise{output_layouts = Shard(1)},
})
if args.pp then pipeline(model, mesh.pp, {microbatches = args.microbatches}) end
if args.zero then replicate(model, mesh.dp, {zero = args.zero}) end
if args.sharded then fully_shard(model, mesh.dp) end

return train{
  model = model,
  batch = distribute({input = randn{11, LENGTH, WIDTH}, target = randn{11, LENGTH, WIDTH}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.mse_loss(output, batch.target) end,
  optimizer = SGD{lr = 0.3, momentum = 0.9}, steps = 3, seed = 3,
}
