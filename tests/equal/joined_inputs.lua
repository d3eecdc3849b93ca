-- mesh: tp=2
-- mesh: tp=3
-- Layouts that styles ask for a join, which its module, or what reads the module, takes in the parts that it was made of.
local Parts = nn.module("Parts", function(self)
  self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
  function self:forward(x)
    return self.a(x:select(1, 0)) * self.b(x:select(1, 1)):tanh()
  end
end)
local Net = nn.module("Net", function(self)
  self.first, self.parts, self.last = nn.Linear(5, 12), Parts(), nn.Linear(6, 3)
  function self:forward(x)
    local y = self.first(x)
    y = self.parts(y:unflatten(-1, 2, 6))
    return self.last(y)
  end
end)
local mesh = device_mesh{{"tp", args.tp or 1}}
local model = parallelize(Net(), mesh.tp, {
  ["parts"] = PrepareModuleInputOutput{input_layouts = {Replicate()}, desired_input_layouts = {Shard(0)}, output_layouts = {Shard(0)},
    desired_output_layouts = {Replicate()}},
  ["parts.a"] = Colwise{input_layouts = Shard(0), output_layouts = Replicate()}, first = Colwise{parts = {6, 6}},
})
return train{
  model = model, batch = {input = randn{6, 5}, target = randn{6, 3}}, seed = 7,
  loss = function(out, batch) return F.mse_loss(out, batch.target) end,
  optimizer = AdamW{lr = 0.01}, steps = 3,
}
