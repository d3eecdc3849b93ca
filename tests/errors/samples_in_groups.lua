-- A rank has three samples of a micro-batch, and the model takes two together.
local mesh = device_mesh{{"dp", 2}}
local M = nn.module("M", function(self)
  self.a = nn.Linear(4, 4)
  function self:forward(x) return self.a(x):unflatten(0, {-1, 2}):mean(1) end
end)
return train{
  model = M(), batch = distribute({input = randn{12, 4}}, mesh.dp, Shard(0)), steps = 1, microbatches = 2,
  loss = function(o) return o:square():sum() end, optimizer = SGD{},
}
