-- Goes forward over a data set: outputs of samples, and one that no sample changes. -D mean: one of all samples of a
-- batch together. -D batch=4, -D dp, -D tp.
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local BATCH = args.batch or 4
local Model = nn.module("Model", function(self)
  self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 5)
  function self:forward(x) return self.down(F.gelu(self.up(x))) end
end)
local model = parallelize(Model(), mesh.tp, {up = Colwise(), down = Rowwise()})
replicate(model, mesh.dp)
return infer{
  model = model, batch = distribute({input = randn{BATCH, 6}}, mesh.dp, Shard(0)), seed = 11,
  outputs = function(model, batch)
    local logits = model(batch.input)
    return {logits = logits, class = logits:argmax(-1), pairs = F.stack({logits, logits * 2}, 1),
      bias = model.up.bias * 2, mean = args.mean and logits:mean(0)}
  end,
}
