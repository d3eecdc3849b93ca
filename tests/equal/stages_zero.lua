-- Stages with ZeRO: the last one reads the first one's gathered weight; a bias, which three stages read and the first does
-- not, has sums of each; views of gathered weights are the same for all micro-batches, in transposed norms and convolutions.
-- mesh: pp=2 dp=2 zero=2 microbatches=2
-- mesh: pp=4 dp=2 zero=1 microbatches=4
-- cuda: pp=4 dp=2 zero=1 microbatches=4
-- mesh: pp=4 microbatches=4
-- mesh: pp=4 dp=2 zero=1 microbatches=2
-- mesh: pp=2 dp=2 zero=1 microbatches=2 accumulate=2
local mesh = device_mesh{ {"pp", args.pp or 1}, {"dp", args.dp or 1} }
local WORDS, WIDTH, LENGTH = 8, 6, 5

local Block = nn.module("Block", function(self)
  self.norm, self.conv, self.lin = nn.GroupNorm(2, WIDTH), nn.Conv1d(WIDTH, WIDTH, 3, {padding = 1}), nn.Linear(WIDTH, WIDTH)
  function self:forward(x)
    return x + self.lin(self.conv(self.norm(x:transpose(1, 2))):transpose(1, 2):tanh())
  end
end)
local Model = nn.module("Model", function(self)
  self.words, self.bias = nn.Embedding(WORDS, WIDTH), nn.Parameter(randn{WIDTH})
  self.layers = nn.ModuleList{Block(), Block(), Block(), Block()}
  function self:forward(ids)
    local x = self.words(ids)
    for i, layer in ipairs(self.layers) do
      if i > 1 then x = x + self.bias end
      x = layer(x)
    end
    return F.linear(x, self.words.weight)
  end
end)

local model = Model()
if args.pp then pipeline(model, mesh.pp, {microbatches = args.microbatches}) end
if args.zero then replicate(model, mesh.dp, {zero = args.zero}) end

return train{
  model = model, batch = distribute({input = randint(WORDS){8, LENGTH}, target = randint(WORDS){8, LENGTH}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.cross_entropy(output, batch.target, {dim = -1}) end,
  optimizer = AdamW{lr = 0.02, eps = 1e-3}, steps = 3, seed = 9, accumulate = args.accumulate,
}
