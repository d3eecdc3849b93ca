-- A dimension of the mesh that goes in groups cuts in one turn, before or behind another one.
-- mesh: dp=4 tp=2 kept=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Model = nn.module("Model", function(self)
  self.first, self.last = nn.Linear(6, 9), nn.Linear(9, 4)
  function self:forward(x)
    local y = self.first(x):redistribute(mesh, {Shard(1, 1), Shard(1, 0)}):tanh()
    return self.last(y:redistribute(mesh, {Shard(0, 0), Shard(0, 1)}):sin())
  end
end)

local model = Model()
fully_shard(model, mesh.dp, {reshard_after_forward = args.kept})
return train{
  model = model, batch = distribute({input = randn{11, 6}}, mesh.dp, Shard(0)),
  loss = function(output) return (output^2):mean() end,
  optimizer = SGD{lr = 0.1}, steps = 3,
}
