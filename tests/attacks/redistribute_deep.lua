-- As many moves as a program of a few lines can ask for, between layouts that differ each time.
local mesh = device_mesh{ {"a", 2}, {"b", 2}, {"c", 2}, {"d", 2} }
local ways = {Shard(0), Shard(1), Shard(2), Replicate(), Partial()}
local M = nn.module("M", function(self)
  function self:forward(x)
    for i = 1, 80 do
      local to, n = {}, i * 7919
      for d = 1, 4 do to[d], n = ways[n % 5 + 1], n // 5 end
      x = x:redistribute(mesh, to)
    end
    return x
  end
end)
return infer{ model = M(), batch = { input = randn{64, 64, 64} }, planner = args.planner }
