-- What is gathered in pieces in the forward's loop is read as a whole by the backward, which is none: the
-- weights that ZeRO keeps cut, along the dimension that async_tp is for.
-- mesh: a=2 dp=2 pieces=2
-- cuda: a=2 dp=2 pieces=2
-- mesh: dp=3 pieces=2
-- sanitized: dp=3 pieces=2
local mesh = device_mesh{ {"a", args.a or 1}, {"dp", args.dp or 1} }

local Block = nn.module("Block", function(self)
  self.first = nn.GELU()
  self.up, self.down = nn.Linear(16, 48), nn.Linear(48, 1)
  function self:forward(x)
    x = self.first(x)
    return x + self.down(F.gelu(self.up(x)))
  end
end)
local Model = nn.module("Model", function(self)
  self.layers, self.output = nn.ModuleList{Block(), Block()}, nn.Linear(16, 2)
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.output(x)
  end
end)

local model = parallelize(Model(), mesh.dp,
  {["layers.*.first"] = PrepareModuleInput{desired_input_layouts = Shard(1)}}, {async_tp = args.pieces})
replicate(model, mesh.dp, {zero = 2})
return train{
  model = model, batch = {input = randn{2, 2, 16}},
  loss = function(output) return output:var() end,
  optimizer = AdamW{lr = 1e-2, eps = 1e-2}, steps = 3,
}
