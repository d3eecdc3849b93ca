local mesh = device_mesh{ {"dp", 2}, {"tp", 2} }
local M = nn.module("M", function(self)
  function self:forward(x)
    return x:redistribute(mesh.dp, Shard(0), {forward_dtype = "bfloat16"})
  end
end)
return infer{ model = M(), batch = { input = randint(9){8, 4} } }
