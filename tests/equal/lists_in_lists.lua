-- Each of two outer modules has a list of layers. The samples of the second one alone are cut, so its gradients alone are
-- summed over ranks, after the last batch. These sums are no loop over the outer modules, but the updates are one.
-- mesh: dp=2
-- mesh: dp=3
-- cuda: dp=3
local mesh = device_mesh{ {"dp", args.dp or 1} }

local Block = nn.module("Block", function(self)
  self.up = nn.Linear(6, 6)
  function self:forward(x) return self.up(x):tanh() end
end)

local Own = nn.module("Own", function(self)
  self.layers = nn.ModuleList{Block(), Block()}
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return x
  end
end)

local Model = nn.module("Model", function(self)
  self.owns = nn.ModuleList{Own(), Own()}
  function self:forward(batch)
    local x = batch.x
    for _, own in ipairs(self.owns) do x = own(x) end
    return x
  end
end)

local model = Model()
parallelize(model, mesh.dp, {["owns.1"] = PrepareModuleInput{desired_input_layouts = Shard(0)}})

return train{
  model = model,
  batch = {x = randn{6, 6}, y = randn{6, 6}},
  forward = function(model, batch) return model(batch) end,
  loss = function(output, batch) return F.mse_loss(output, batch.y) end,
  optimizer = SGD{lr = 0.05}, steps = 5, seed = 1, accumulate = 2,
}
