-- Micro-batches of unlike sizes: sums over ranks that share a call, in the forward and the backward, of values with few and
-- with many elements a sample; adapters; data parallel ranks with unlike numbers of samples.
-- mesh: microbatches=2 tp=2
-- mesh: microbatches=3 dp=2 tp=2
-- sanitized: microbatches=3 dp=2 tp=2
-- cuda: microbatches=2 tp=2
-- mesh: microbatches=5 tp=3
-- mesh: microbatches=2 dp=2 tp=2 sharded=1
-- mesh: microbatches=2 dp=2 tp=2 greedy=1
-- mesh: microbatches=4 tp=4 greedy=1
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local WIDTH, HIDDEN, OUT = 4, 6, 2

local Block = nn.module("Block", function(self)
  self.norm = nn.RMSNorm(WIDTH)
  self.up = nn.Linear(WIDTH, HIDDEN)
  self.a, self.b, self.c = nn.Linear(HIDDEN, WIDTH), nn.Linear(HIDDEN, OUT), nn.Linear(HIDDEN, WIDTH)
  function self:forward(x)
    local h = F.relu(self.up(self.norm(x)))
    return x + F.tanh(self.a(h)) * F.sigmoid(self.c(h)) + self.b(h):sum(-1, true)
  end
end)

local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{Block(), Block(), Block()}
  self.out = nn.Linear(WIDTH, OUT)
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.out(x)
  end
end)

local model = Model()
lora(model, {rank = 3, alpha = 6, match = {"up", "a", "b"}})
unfreeze(model, {"layers.*.norm", "layers.*.c", "out"})
parallelize(model, mesh.tp, {
  ["layers.*"] = {up = Colwise(), a = Rowwise(), b = Rowwise(), c = Rowwise()},
})
if args.sharded then fully_shard(model, mesh.dp) end

return train{
  model = model,
  batch = distribute({input = randn{11, WIDTH}, target = randn{11, OUT}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.mse_loss(output, batch.target) end,
  optimizer = SGD{lr = 0.2, momentum = 0.9}, steps = 4, seed = 9, grad_norm = true,
  microbatches = args.microbatches, bucketing = args.greedy and "greedy" or nil,
}
