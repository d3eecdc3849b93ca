-- Parameters that begin as torch.nn.init makes them, cut along either dimension, gathered, and of repeated layers: the same
-- numbers on every mesh.
-- mesh: tp=2
-- mesh: tp=3 dp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Layer = nn.module("Layer", function(self)
  self.up, self.down = nn.Linear(10, 13), nn.Linear(13, 10, {init = nn.init.orthogonal(2)})
  nn.init.orthogonal_(self.up.weight, {gain = 0.5})
  function self:forward(x) return x + self.down(self.up(x):tanh()) end
end)

local Model = nn.module("Model", function(self)
  self.conv = nn.Conv2d(4, 8, 3, {padding = 1})
  nn.init.dirac_(self.conv.weight, {groups = 2})
  nn.init.trunc_normal_(self.conv.bias, {std = 0.5, a = 0.25, b = 2})
  self.layers = nn.ModuleList{Layer(), Layer(), Layer()}
  self.sparse, self.out = nn.Linear(10, 7), nn.Linear(7, 9, {init = nn.init.eye()})
  nn.init.sparse_(self.sparse.weight, 0.3, 0.5)
  nn.init.trunc_normal_(self.sparse.bias)
  function self:forward(input)
    local x = self.conv(input:narrow(1, 0, 100):view(6, 4, 5, 5)):mean({2, 3})
    x = F.pad(x, {0, 2}) + input:narrow(1, 100, 10)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.out(self.sparse(x))
  end
end)

local model = parallelize(Model(), mesh.tp, {
  ["layers.*"] = {up = Colwise(), down = Rowwise()}, sparse = Colwise(), out = Rowwise(),
})
if args.dp then fully_shard(model, mesh.dp) end

return train{
  model = model,
  batch = distribute({input = randn{6, 110}, target = randn{6, 9}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return ((output - batch.target)^2):sum() * 0.1 end,
  optimizer = SGD{lr = 0.05},
  steps = 3, seed = 13,
}
