-- PrepareModuleInput and PrepareModuleOutput move a module's tensors: S(1) -> R, R -> S(1), S(0) -> S(2).
-- mesh: tp=2
-- mesh: tp=3
-- mesh: tp=5
-- mesh: dp=2 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Gate = nn.module("Gate", function(self)
  self.up = nn.Linear(4, 6)
  function self:forward(x, gate) return self.up(x) * gate end
end)

local Model = nn.module("Model", function(self)
  self.a = Gate()
  self.b = nn.Linear(6, 4)
  self.c = Gate()
  function self:forward(x, gate)
    local y = self.a(x, gate)
    local z = self.b(y)
    return self.c(z + x, gate) + y
  end
end)

local model = parallelize(Model(), mesh.tp, {
  a = PrepareModuleInput{
    input_layouts = {Shard(1), false}, desired_input_layouts = {Replicate(), Shard(2)}},
  ["a.up"] = Colwise(),
  b = Rowwise{output_layouts = Shard(1)},
  c = PrepareModuleInput{desired_input_layouts = {Shard(0), Shard(1)}},
})
parallelize(model, mesh.tp, {c = PrepareModuleOutput{desired_output_layouts = Shard(-1)}})
local batch = distribute({input = randn{4, 5, 4}, gate = rand{4, 5, 6}, target = randn{4, 5, 6}},
  mesh.dp, Shard(0))
distribute(batch.input, mesh.tp, Shard(1))

return train{
  model = model, batch = batch,
  forward = function(model, batch) return model(batch.input, batch.gate) end,
  loss = function(output, batch) return ((output - batch.target)^2):mean() end,
  optimizer = SGD{lr = 0.3},
  steps = 5, seed = 4,
}
