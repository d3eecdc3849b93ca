-- args: --ranks 0-1
local M = nn.module("M", function(self)
  self.a = nn.Linear(10, 5)
  function self:forward(x) return self.a(x) end
end)
local mesh = device_mesh{ {"tp", 65536} }
return train {
  model = parallelize(M(), mesh.tp, { a = Colwise() }),
  batch = { input = randn{20, 10}, target = randn{20, 5} },
  loss = function(output, batch) return (output - batch.target):var() end,
  optimizer = AdamW{ lr = 0.05 }, steps = 1, seed = 1,
}
