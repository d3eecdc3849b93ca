local mesh = device_mesh{ {"dp", 2} }
local Model = nn.module("Model", function(self)
  self.embed = nn.Embedding(10, 4)
  self.head = nn.Linear(4, 10, {bias = false})
  function self:forward(ids, _, last)
    local x = self.embed(ids)
    if last then x = x:index_select(1, last) end
    return self.head(x)
  end
end)
return generate{ model = fully_shard(Model(), mesh.dp), vocab = 10, context = 16 }
