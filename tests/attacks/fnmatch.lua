-- A pattern that tries every way to cut a name.
local M = nn.module("M", function(self)
  self[("a"):rep(200)] = nn.Linear(10, 5)
  function self:forward(x) return x end
end)
local mesh = device_mesh{ {"tp", 2} }
return parallelize(M(), mesh.tp, { [("*a"):rep(40) .. "b"] = Colwise() })
