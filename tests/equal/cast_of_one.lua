-- A value is moved as bfloat16 and cast back while it is cut along a dimension of size 1, in a list.
-- mesh: dp=2 tp=2
-- sanitized: dp=2 tp=2
-- rounds: bfloat16
local mesh = device_mesh{ {"dp", args.dp or 1}, {"a", args.a or 1}, {"b", args.b or 1}, {"tp", args.tp or 1} }

local Block = nn.module("Block", function(self)
  self.norm = nn.LayerNorm(16)
  function self:forward(x)
    local y = self.norm(x):redistribute(mesh, {Shard(2), Shard(2), Replicate(), Shard(2)}, {forward_dtype = "bfloat16"})
    return y:to("float32")
  end
end)
local Model = nn.module("Model", function(self)
  self.layers, self.output = nn.ModuleList{Block(), Block(), Block()}, nn.Linear(16, 2)
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.output(x)
  end
end)

return train{
  model = parallelize(Model(), mesh.dp, {["layers.*.norm"] = SequenceParallel{sequence_dim = 0}}),
  batch = {input = randn{1, 2, 16}},
  loss = function(output) return (output^2):mean() end,
  optimizer = SGD{lr = 0.1}, steps = 3,
}
