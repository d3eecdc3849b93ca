-- args: -D tp=2
local Model = nn.module("Model", function(self)
  self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 4)
  self.c, self.d = nn.Linear(4, 6), nn.Linear(6, 4)
  function self:forward(x) return self.d(self.c(self.b(self.a(x)))) end
end)
local mesh = device_mesh{ {"tp", args.tp} }
train{
  model = parallelize(Model(), mesh.tp, {a = Colwise(), b = Rowwise(), c = Colwise(), d = Rowwise()}),
  batch = {input = randn{2, 4}}, loss = function(y) return y:sum() end,
  optimizer = SGD(), steps = 1, expect = {all_gather = 2},
}
