local M = nn.module("M", function(self)
  self.a = nn.Linear(10, 10)
  self.self = self
  function self:forward(x) return self.self(x) end
end)
local mesh = device_mesh{ {"tp", 2} }
return train {
  model = parallelize(M(), mesh.tp, { ["*"] = Colwise() }),
  batch = { input = randn{20, 10}, target = randn{20, 10} },
  loss = function(output, batch) return (output - batch.target):var() end,
  optimizer = AdamW{ lr = 0.05 }, steps = 1, seed = 1,
}
