-- Sums scattered along the first and the middle dimension, and all-to-alls between two shardings.
-- mesh: tp=2
-- mesh: tp=3
-- cuda: tp=3
-- mesh: tp=4
-- mesh: dp=2 tp=2
-- mesh: dp=2 tp=3
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Model = nn.module("Model", function(self)
  self.a = nn.Linear(6, 9)
  self.b = nn.Linear(9, 8)
  self.c = nn.Linear(8, 9)
  self.d = nn.Linear(9, 4)
  function self:forward(x)
    local h = self.b(self.a(x):tanh())
    return self.d(self.c(h):tanh())
  end
end)

local model = parallelize(Model(), mesh.tp, {
  a = Colwise(),
  b = Rowwise{output_layouts = Shard(0)},
  c = PrepareModuleInput{input_layouts = Shard(0), desired_input_layouts = Shard(1)},
  d = Rowwise{output_layouts = Shard(1)},
})
-- S(1) -> S(2) -> S(0) -> S(1), all to all
parallelize(model, mesh.tp, {c = PrepareModuleOutput{desired_output_layouts = Shard(2)}})
parallelize(model, mesh.tp, PrepareModuleOutput{desired_output_layouts = Shard(0)})

return train{
  model = model,
  batch = distribute({input = randn{3, 5, 6}, target = randn{3, 5, 4}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return ((output - batch.target)^2):mean() end,
  optimizer = SGD{lr = 0.3},
  steps = 5, seed = 6,
}
