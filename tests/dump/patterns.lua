-- Patterns of modules and of parameters: several stars, ** and alternatives.
local Block = nn.module("Block", function(self)
  self.up, self.gate, self.down = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(8, 6)
  self.norm = nn.RMSNorm(6)
  function self:forward(x) return x + self.down(self.up(self.norm(x)) * self.gate(x)) end
end)
local Model = nn.module("Model", function(self)
  self.blocks = nn.ModuleList{Block(), Block()}
  self.deep = nn.Sequential(nn.Sequential(nn.Linear(6, 6)), nn.Linear(6, 6))
  self.head = nn.Linear(6, 4)
  function self:forward(x)
    for _, block in ipairs(self.blocks) do x = block(x) end
    return self.head(self.deep(x))
  end
end)
local mesh = device_mesh{ {"tp", 2} }
local model = parallelize(Model(), mesh.tp, {
  ["**.up|**.gate"] = Colwise(), ["**.d?wn"] = Rowwise(), ["deep.0.0|deep.1"] = Colwise{output_layouts = Replicate()},
  ["h[a-f]ad"] = Colwise(),
})
return infer{
  model = model, batch = {input = randn{4, 6}},
  outputs = function(model, batch) return {y = model(batch.input)} end,
  names = {
    ["blocks.*.up.*"] = "layer.*.w1.*", ["blocks.*.down.b*s|blocks.*.norm.w*t"] = "layer.*.the_*", ["**.gate.**"] = "**.w3.**",
    ["**.0.weight"] = "**.first.kernel", ["h*d.*s"] = "top*.*",
  },
}
