local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{nn.Linear(4, 4), nn.Linear(4, 4)}
  function self:forward(x) return self.layers[2](F.relu(self.layers[1](x))) end
end)
return train{
  model = Model(), batch = {input = randn{8, 4}}, steps = 1, optimizer = SGD(),
  loss = function(output) return output:mean() end, checkpoint = {memory = true},
}
