local mesh = device_mesh{ {"tp", 2} }
local M = nn.module("M", function(self)
  self.weight = nn.Parameter(distribute(randn{6, 16}, mesh.tp, Shard(1)))
  function self:forward(x) return x:matmul(self.weight) end
end)
infer{
  model = parallelize(M(), mesh.tp, SequenceParallel()),
  batch = {input = randn{4, 6}},
}
