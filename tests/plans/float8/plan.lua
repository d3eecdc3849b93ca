-- A small model whose inner products take float8 and whose head does not. -D recipe=rowwise: a scale for each row of terms.
-- All else is float32: golden/float8 has what torchao makes of it.
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local WIDTH, HIDDEN, OUTPUTS = 32, 64, 6

local Block = nn.module("Block", function(self)
  self.norm = nn.RMSNorm(WIDTH, {eps = 1e-5})
  self.w1, self.w2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
  function self:forward(x) return x + self.w2(F.silu(self.w1(self.norm(x)))) end
end)

local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{Block(), Block()}
  self.output = nn.Linear(WIDTH, OUTPUTS)
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.output(x)
  end
end)

local model = parallelize(Model(), mesh.tp, {
  ["layers.*"] = {
    norm = SequenceParallel(),
    w1 = Colwise{input_layouts = Shard(1)},
    w2 = Rowwise{output_layouts = Shard(1)},
  },
})
if args.fsdp then
  for _, layer in ipairs(model.layers) do fully_shard(layer, mesh.dp) end
  fully_shard(model, mesh.dp)
end
float8(model, {recipe = args.recipe, skip = "output"})

return train{
  model = model,
  batch = distribute({input = randn{8, 8, WIDTH}, target = randn{8, 8, OUTPUTS}}, mesh.dp, Shard(0)),
  loss = function(y, batch) return (y - batch.target):square():mean() end,
  optimizer = SGD{lr = 0.2, momentum = 0.9},
  accumulate = args.accumulate,
  steps = 12,
}
