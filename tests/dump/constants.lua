-- What is the same in every step: tables that each layer makes, and a mask of rows, are computed once, before the
-- first step. What a kernel makes as it goes, what costs little, and random numbers stay in the step.
local Layer = nn.module("Layer", function(self)
  self.q = nn.Linear(8, 8, {bias = false})
  self.drop = nn.Dropout(0.1)
  function self:forward(x)
    local cos, sin = F.rotary_tables(6, 8)
    local scores = self.q(x):rotary(cos, sin)
    local seen = F.arange(8):view(1, 8):lt(5)
    return x + self.drop(F.where(seen, scores * (1 / math.sqrt(8)), 0.0))
  end
end)

local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{Layer(), Layer()}
  function self:forward(x)
    local faded = (F.arange(6):to("float32") * -0.5):exp():view(1, 6, 1)
    for _, layer in ipairs(self.layers) do x = layer(x * faded) end
    local row = F.arange(4):to("float32"):view(4, 1, 1)
    return x * (row - 2):abs() + (row * 0.1):exp()
  end
end)

local mesh = device_mesh{ {"tp", 2} }
return train{
  model = parallelize(Model(), mesh.tp, {["layers.*.q"] = Colwise{output_layouts = Replicate()}}),
  batch = distribute({input = randn{4, 6, 8}, target = randn{4, 6, 8}}, mesh.tp, Replicate()),
  loss = function(output, batch) return (output - batch.target):square():mean() end,
  optimizer = SGD{lr = 0.1}, steps = 2,
}
