-- What a list's last iteration leaves pending: gradients of which one is summed on behind the others'
-- reduction, which are awaited with it.
-- mesh: a=2 b=2 c=2
-- cuda: a=2 b=2 c=2
local mesh = device_mesh{ {"a", args.a or 1}, {"b", args.b or 1}, {"c", args.c or 1} }

local Gated = nn.module("Gated", function(self, width, hidden)
  self.norm = nn.RMSNorm(width, {eps = 0.1})
  self.w1, self.w3 = nn.Linear(width, hidden, {bias = false}), nn.Linear(width, hidden)
  self.w2 = nn.Linear(hidden, width, {bias = false})
  function self:forward(x)
    local h = self.norm(x)
    return x + self.w2(self.w1(h) * self.w3(h))
  end
end)

local Model = nn.module("Model", function(self)
  self.first, self.norm = nn.Linear(7, 1), nn.LayerNorm({1}, {eps = 0.1})
  self.blocks = nn.ModuleList{Gated(1, 3), Gated(1, 3)}
  function self:forward(x)
    local y = self.first(x):redistribute(mesh, {Shard(1), Shard(0, 0), Replicate()})
    y = self.norm(y)
    for _, block in ipairs(self.blocks) do y = block(y) end
    return y
  end
end)

local model = Model()
parallelize(model, mesh.c, {norm = SequenceParallel{sequence_dim = 0}})
for _, block in ipairs(model.blocks) do
  fully_shard(block, mesh.b, {reshard_after_forward = false})
end
return train{
  model = model, batch = {input = randn{5, 7}},
  loss = function(output) return ((output - 1)^2):mean() end,
  optimizer = SGD{lr = 0.02}, steps = 3,
}
