-- Muon of stacks of matrices: of experts, which ranks have some of, and of a parameter of three dimensions, cut along the first
-- one, evenly or not; beside its matrices.
-- mesh: dp=3
-- mesh: ep=2
-- cuda: ep=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"ep", args.ep or 1} }
local WIDTH = 8

local Block = nn.module("Block", function(self)
  self.norm, self.moe = nn.LayerNorm(WIDTH), nn.MoE(WIDTH, {experts = 4, top_k = 2, hidden = 6})
  self.stack, self.last = nn.Parameter(randn{4, 6, WIDTH}), nn.Linear(6, WIDTH)
  function self:forward(x)
    x = x + (self.moe(self.norm(x)))
    return x + self.last(x:matmul(self.stack:transpose(1, 2)):tanh())
  end
end)
local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{Block(), Block()}
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return x
  end
end)

local model = Model()
if args.ep then parallelize(model, mesh.ep, {["layers.*.moe.experts"] = ExpertParallel()}) end
if args.dp then
  for _, layer in ipairs(model.layers) do fully_shard(layer, mesh.dp) end
  fully_shard(model, mesh.dp)
end

return train{
  model = model, batch = distribute({x = randn{4, 5, WIDTH}, y = randn{4, 5, WIDTH}}, mesh.ep, Shard(0)),
  forward = function(model, batch) return model(batch.x) end,
  loss = function(output, batch) return F.mse_loss(output, batch.y) end,
  optimizer = AdamW{lr = 0.01, eps = 1e-3},
  groups = {{match = "**.experts.*|**.stack|**.last.weight", optimizer = Muon{lr = 0.02, dtype = "float32"}}},
  steps = 3, seed = 3,
}
