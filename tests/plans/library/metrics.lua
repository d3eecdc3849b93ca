-- A model that trains, with metrics: they stand behind the loss. Of micro-batches they are whole after the last one.
local mesh = device_mesh{ {"tp", args.tp or 2} }
local Model = nn.module("Model", function(self)
  self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 3)
  function self:forward(x) return self.down(F.gelu(self.up(x))) end
end)
local function loss(output, batch) return F.mse_loss(output, batch.target) end
return train{
  model = parallelize(Model(), mesh.tp, {up = Colwise(), down = Rowwise()}),
  batch = {input = randn{5, 6}, target = randn{5, 3}}, loss = loss,
  metrics = function(output, batch) return {half = loss(output, batch) * 0.5, another = loss(output, batch) * 4} end,
  optimizer = SGD{lr = 0.1}, steps = 3, seed = 2, microbatches = 2, emit = "library", validate = {},
}
