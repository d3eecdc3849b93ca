-- A mesh of six dimensions: searches end at their bounds, and plan.txt says so.
local mesh = device_mesh{ {"a", 2}, {"b", 2}, {"c", 2}, {"d", 2}, {"e", 2}, {"f", 2} }
local Model = nn.module("Model", function(self)
  self.linear = nn.Linear(64, 64)
  function self:forward(x)
    x = self.linear(x)
    return x:redistribute(mesh, {Shard(1), Shard(2), Shard(1), Shard(2), Shard(0), Shard(1)})
  end
end)
return infer{
  model = Model(),
  batch = distribute({input = randn{64, 64, 64}}, mesh, {Shard(0), Shard(0), Shard(1), Shard(0), Shard(2), Shard(0)}),
}
