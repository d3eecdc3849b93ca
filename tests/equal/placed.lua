-- Parameters of a module's own that distribute places, whole and fully sharded besides.
-- mesh: tp=2
-- mesh: dp=2 tp=3
-- mesh: dp=2 tp=2 fsdp=true
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Model = nn.module("Model", function(self)
  self.w = nn.Parameter(distribute(randn{6, 16}, mesh.tp, Shard(-1)))
  self.b = nn.Parameter(distribute(zeros{16}, mesh.tp, Shard(0)))
  self.v = nn.Parameter(distribute(randn{16, 5}, mesh, {false, Shard(0)}))
  function self:forward(x) return F.relu(x:matmul(self.w) + self.b):matmul(self.v) end
end)

local model = Model()
if args.fsdp then fully_shard(model, mesh.dp) end

return train{
  model = model,
  batch = distribute({input = randn{4, 6}}, mesh.dp, Shard(0)),
  loss = function(output) return output:square():mean() end,
  optimizer = AdamW{lr = 0.02, eps = 1e-3},
  expect = args.tp == 2 and not args.fsdp and {all_reduce = 1} or nil,
  steps = 4,
}
