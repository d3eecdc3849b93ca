-- What is moved in bfloat16 comes to the same on every mesh, also on one rank, where nothing moves: a
-- weight that is kept in parts is gathered so, and its gradient reduced in float32; the gradient of
-- another, which is made of whole numbers, comes back in bfloat16.
-- mesh: a=2
-- mesh: a=3
-- mesh: a=2 b=2
-- cuda: a=2 b=2
-- mesh: a=2 b=3
-- sanitized: a=2 b=3
local mesh = device_mesh{ {"a", args.a or 1}, {"b", args.b or 1} }
local gathered = {forward_dtype = "bfloat16", backward_dtype = "float32"}

local Model = nn.module("Model", function(self)
  self.weight = nn.Parameter{7, 6, init = nn.init.uniform(-0.5, 0.5)}
  self.gain = nn.Parameter{6, init = nn.init.uniform(0.5, 1.5)}
  self.counted = nn.Parameter{5, 6, init = nn.init.normal(0, 1)}
  self.last = nn.Linear(7, 3)
  function self:forward(batch)
    local x = batch.input:to("float32")
    local counted = self.counted:redistribute(mesh, {Shard(0), Shard(1)}):redistribute(mesh,
      {Shard(1), Shard(0)}, {backward_dtype = "bfloat16"})
    local exact = (counted * x):sum() / 1024
    x = x:redistribute(mesh, {Shard(1), Shard(0)}, {forward_dtype = "bfloat16"}):to("float32")
    local kept = self.weight:redistribute(mesh, {Shard(0), Shard(0)})
    local weight = kept:redistribute(mesh, {Replicate(), Replicate()}, gathered):to("float32")
    local h = F.linear(x / 128 * self.gain, weight):redistribute(mesh, {Shard(1), Shard(0)})
    return ((self.last(h:tanh()) - batch.target)^2):mean() + exact
  end
end)

return train{
  model = Model(),
  batch = distribute({input = randint(1000){5, 6}, target = randn{5, 3}}, mesh.a, Shard(0)),
  forward = function(model, batch) return model(batch) end,
  loss = function(loss) return loss end,
  optimizer = SGD{lr = 0.1},
  steps = 3, seed = 33,
}
