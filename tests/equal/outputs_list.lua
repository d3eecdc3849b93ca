-- An inference program over equal layers, with the sequence cut, whose outputs are the layers' own.
-- mesh: tp=2
-- mesh: tp=4
-- mesh: dp=2 tp=3
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Layer = nn.module("Layer", function(self)
  self.up = nn.Linear(5, 9)
  self.down = nn.Linear(9, 5)
  function self:forward(x) return x + self.down(self.up(x):relu()) end
end)

local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{Layer(), Layer(), Layer()}
  function self:forward(x)
    local all = {}
    for i, layer in ipairs(self.layers) do
      x = layer(x)
      all["x" .. i] = x
    end
    return all
  end
end)

return infer{
  model = parallelize(Model(), mesh.tp, {
    ["layers.*.up"] = Colwise{input_layouts = Shard(1)},
    ["layers.*.down"] = Rowwise{output_layouts = Shard(1)},
  }),
  batch = {input = distribute(randn{3, 5, 5}, mesh.dp, Shard(0))},
  outputs = function(model, batch) return model(batch.input) end,
  seed = 19,
}
