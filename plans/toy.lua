-- Two linear layers, trained on two ranks by tensor parallelism: tpgen plans/toy.lua -o out/ -D tp=2
local args = settings{
  {"dp", 1, "ranks that share the batch", search = true}, {"tp", 2, "ranks that share each layer", search = true},
  {"lr", 0.05, "the learning rate"}, {"steps", 10, "steps of the training"},
}

-- A module, as in PyTorch: what it holds, and what it does with an input.
local ToyModel = nn.module("ToyModel", function(self)
  self.in_proj  = nn.Linear(10, 32)
  self.relu     = nn.ReLU()
  self.out_proj = nn.Linear(32, 5)

  function self:forward(x)
    return self.out_proj(self.relu(self.in_proj(x)))
  end
end)

-- The ranks: dp of them share the batch, tp of them share the model. -D dp=2 sets args.dp.
local mesh = device_mesh{ {"dp", args.dp}, {"tp", args.tp} }

-- The first layer is cut by the columns of its output, the second by the rows of its input, so that
-- the one fits the other and only the sums that the second leaves have to travel.
local model = parallelize(ToyModel(), mesh.tp, {
  ["in_proj"]  = Colwise(),
  ["out_proj"] = Rowwise(),
})

-- What a step reads. Without a file of data it is drawn from the normal distribution.
local batch = distribute({ input = randn{20, 10}, target = randn{20, 5} }, mesh.dp, Shard(0))

return train{
  model     = model,
  batch     = batch,
  loss      = function(output, batch) return (output - batch.target):var() end,
  optimizer = AdamW{ lr = args.lr },
  steps     = args.steps,
  seed      = 45,
}
