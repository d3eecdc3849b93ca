-- A perceptron on two ranks, tensor parallel: the first layer is cut by columns, the second by rows, so one all-reduce joins them.
local mesh = device_mesh{ {"tp", 2} }

local Perceptron = nn.module("Perceptron", function(self)
  self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 4)
  function self:forward(x) return self.down(F.gelu(self.up(x))) end
end)

return train{
  model = parallelize(Perceptron(), mesh.tp, {up = Colwise(), down = Rowwise()}),
  batch = {input = randn{32, 16}, target = randint(4){32}},
  loss = function(output, batch) return F.cross_entropy(output, batch.target) end,
  optimizer = AdamW{lr = 0.02}, steps = 10, seed = 1,
}
