-- args: -D tp=1
-- Weights that files have in float8 or MXFP4, cut in all dimensions.
local args = settings{ {"tp", 1, "ranks that share the weights"}, {"cut", 0, "the dimension in which experts are cut", type = "count"} }
local mesh = device_mesh{ {"tp", args.tp} }

local Experts = nn.module("Experts", function(self)
  self.gate = nn.Parameter(randn{3, 24, 70})
  self.gate_up_proj = nn.Parameter(randn{3, 64, 20})
  function self:forward(x) return x + self.gate:mean() + self.gate_up_proj:mean() end
end)

local Model = nn.module("Model", function(self)
  self.up, self.down = nn.Linear(70, 40), nn.Linear(40, 70, {bias = false})
  self.experts = Experts()
  function self:forward(x) return self.experts(self.down(self.up(x))) end
end)

local model = parallelize(Model(), mesh.tp, {
  up = Colwise(), down = Rowwise(),
  experts = args.tp > 1 and ModuleLayouts{parameters = {gate = Shard(args.cut), gate_up_proj = Shard(args.cut)}} or nil,
})
return train{
  model = model,
  batch = {input = randn{4, 70}},
  loss = function(output) return output:pow(2):mean() end,
  optimizer = SGD{lr = 0}, steps = 1, seed = 3,
  names = {
    ["up.weight"] = "model.up.weight", ["up.bias"] = "model.bias", ["down.weight"] = "model.down.weight",
    ["experts.gate"] = "model.experts.{}.gate.weight", ["experts.gate_up_proj"] = "model.mixed.gate_up_proj",
  },
}
