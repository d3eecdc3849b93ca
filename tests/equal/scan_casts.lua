-- Recurrent modules of a list in bfloat16: a scan sums up a float32 gradient, which is one of a stack of the list's modules
-- because a loop casts their weights.
-- rounds: bfloat16
-- mesh: dp=2
-- mesh: dp=2 sharded=1
-- mesh: dp=2 microbatches=2
local mesh = device_mesh{ {"dp", args.dp or 1} }
local WIDTH, LENGTH = 6, 5

local Gated = nn.module("Gated", function(self)
  self.norm, self.rnn = nn.LayerNorm(WIDTH), nn.GRU(WIDTH, WIDTH, {batch_first = true})
  function self:forward(x) return x + (self.rnn(self.norm(x))) end
end)
local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{Gated(), Gated(), Gated()}
  self.out = nn.Linear(WIDTH, 4)
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.out(x)
  end
end)

local model = Model()
if args.sharded then fully_shard(model, mesh.dp) end
mixed_precision(model, {param_dtype = "bfloat16", reduce_dtype = "float32"})

return train{
  model = model,
  batch = distribute({input = randn{4, LENGTH, WIDTH}, target = randn{4, LENGTH, 4}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.mse_loss(output:to("float32"), batch.target) end,
  optimizer = SGD{lr = 0.2}, steps = 3, seed = 5, grad_norm = true, microbatches = args.microbatches,
}
