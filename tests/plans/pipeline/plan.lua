-- Two layers in two stages: a program that has all files of the runtime that stages need.
local mesh = device_mesh{ {"pp", 2} }
local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{nn.Linear(4, 4), nn.Linear(4, 4)}
  function self:forward(x) return self.layers[2](self.layers[1](x):relu()) end
end)
return train{
  model = pipeline(Model(), mesh.pp, {schedule = args.schedule or "gpipe", microbatches = args.microbatches or 2}),
  batch = {input = randn{4, 4}, target = randn{4, 4}}, optimizer = SGD{lr = 0.1}, steps = 1,
  loss = function(y, batch) return F.mse_loss(y, batch.target) end,
}
