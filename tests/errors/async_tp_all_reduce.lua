-- What tensor parallelism reduces stays whole: without sequence parallelism nothing travels in pieces.
local mesh = device_mesh{ tp = 2 }
local Toy = nn.module("Toy", function(self)
  self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
  function self:forward(x) return self.down(self.up(x)) end
end)
local model = parallelize(Toy(), mesh.tp, {up = Colwise(), down = Rowwise()}, {async_tp = true})

return train{
  model     = model,
  batch     = {input = randn{4, 8}, y = randn{4, 8}},
  loss      = function(output, batch) return (output - batch.y):square():mean() end,
  optimizer = AdamW{},
  steps     = 1,
}
