local M = nn.module("M", function(self)
  self.layers = nn.ModuleList{nn.Linear(4, 4), nn.Linear(4, 4)}
  function self:forward(x) return self.layers[2](self.layers[1](x)) end
end)
train{
  model = M(), batch = {input = randn{2, 4}}, loss = function(y) return y:sum() end,
  optimizer = SGD(), steps = 1, names = {[("*"):rep(17, ".")] = "model"},
}
