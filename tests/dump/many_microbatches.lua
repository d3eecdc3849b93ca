-- More ranks, each in all micro-batches, than a table of extents has room for.
local mesh = device_mesh{ {"dp", 16} }
local M = nn.module("M", function(self) self.a = nn.Linear(8, 16) function self:forward(x) return self.a(x) end end)
return train{ model = M(), batch = distribute({ input = randn{16384, 8}, target = randn{16384, 16} }, mesh.dp, Shard(0)),
  loss = function(o, b) return F.mse_loss(o, b.target) end, optimizer = SGD{}, steps = 1, microbatches = 1024 }
