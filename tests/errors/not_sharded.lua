-- Nothing but replication is legal: the plan has to say so.
local mesh = device_mesh{ {"tp", 2} }
local model = nn.module("Sorter", function(self)
  function self:forward(x) return (x:sort(0)) end
end)()
return infer{ model = model, batch = distribute({ input = randn{8} }, mesh.tp, Shard(0)) }
