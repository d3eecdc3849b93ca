-- Fully sharded over more ranks than some parameters have rows: ranks without a part of some tensors, of modules of a list that
-- are alike, unlike, frozen, or have one parameter more.
-- mesh: dp=3
-- mesh: dp=5
-- cuda: dp=3
-- mesh: dp=7
-- mesh: dp=2
local mesh = device_mesh{ {"dp", args.dp or 1} }
local A = nn.module("A", function(self)
  self.norm, self.up = nn.RMSNorm(4), nn.Linear(4, 4)
  function self:forward(x) return x + self.up(self.norm(x)) end
end)
local B = nn.module("B", function(self)
  self.norm, self.a, self.b = nn.RMSNorm(4), nn.Linear(4, 12), nn.Linear(12, 4)
  function self:forward(x) return x + self.b(F.relu(self.a(self.norm(x)))) end
end)
local C = nn.module("C", function(self)
  self.norm, self.up, self.scale = nn.RMSNorm(4), nn.Linear(4, 4), nn.Parameter(ones{2})
  function self:forward(x) return x + self.up(self.norm(x)) * self.scale:sum() end
end)
local Net = nn.module("Net", function(self)
  self.layers, self.out = nn.ModuleList{A(), B(), A(), A(), C(), B(), C()}, nn.Linear(4, 7)
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.out(x)
  end
end)
local model = Net()
freeze(model.layers[3])
fully_shard(model, mesh.dp)
return train{
  model = model, batch = distribute({input = randn{8, 4}, target = randn{8, 7}}, mesh.dp, Shard(0)),
  loss = function(y, batch) return F.mse_loss(y, batch.target) end,
  optimizer = SGD{lr = 0.02, momentum = 0.9}, steps = 3,
}
