-- The toy's model without training: the program reads an input and writes what the model makes
-- of it.
--
--   tpgen plans/toy_infer.lua -o out/ -D tp=4

local args = settings{
  {"dp", 1, "ranks that share the batch", search = true}, {"tp", 2, "ranks that share each layer", search = true},
}

local ToyModel = nn.module("ToyModel", function(self)
  self.in_proj  = nn.Linear(10, 32)
  self.relu     = nn.ReLU()
  self.out_proj = nn.Linear(32, 5)

  function self:forward(x)
    return self.out_proj(self.relu(self.in_proj(x)))
  end
end)

local mesh = device_mesh{ {"dp", args.dp}, {"tp", args.tp} }

local model = parallelize(ToyModel(), mesh.tp, {
  ["in_proj"]  = Colwise(),
  ["out_proj"] = Rowwise(),
})

return infer{
  model   = model,
  batch   = { input = distribute(randn{20, 10}, mesh.dp, Shard(0)) },
  outputs = function(model, batch)
    return { output = model(batch.input) }
  end,
  seed    = 45,
}
