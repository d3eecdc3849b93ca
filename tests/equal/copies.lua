-- Parameters that are cut over dp, with copies, and of which some ranks have nothing: these still give
-- their part of the gradients, but have nothing to sum over the copies.
-- mesh: copies=2 dp=3
local width = 64
local mesh = device_mesh{ {"copies", args.copies or 1}, {"dp", args.dp or 1} }

local Block = nn.module("Block", function(self)
  local plain = {bias = false}
  self.up, self.down = nn.Linear(width, 2, plain), nn.Linear(2, width, plain)
  function self:forward(x) return x + self.down(F.silu(self.up(x))) end
end)

local Net = nn.module("Net", function(self)
  self.first, self.a, self.b, self.c = nn.Linear(width, width), Block(), Block(), Block()
  function self:forward(x) return self.c(self.b(self.a(self.first(x):tanh()))) end
end)

local model = Net()
for _, block in ipairs{model.a, model.b, model.c} do
  fully_shard(block.up, mesh{"copies", "dp"})
  fully_shard(block.down, mesh{"copies", "dp"})
end
local batch = {input = randn{24, 16, width}, target = randn{24, 16, width}}

return train{
  model = model,
  batch = distribute(distribute(batch, mesh.dp, Shard(0)), mesh.copies, Shard(0)),
  loss = function(output, batch) return F.mse_loss(output, batch.target) end,
  optimizer = SGD{lr = 0.05},
  bucketing = "none", steps = 3,
}
