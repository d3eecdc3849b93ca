local mesh = device_mesh{ {"tp", 2} }
local Model = nn.module("Model", function(self)
  self.a, self.b = nn.Linear(10, 10), nn.Linear(10, 10)
  self.b.weight = self.a.weight
  function self:forward(x) return self.b(self.a(x)) end
end)
infer{model = parallelize(Model(), mesh.tp, {a = Colwise(), b = Rowwise()}), batch = {input = randn{20, 10}}}
