-- Names that are no text, and patterns that are no patterns.
local M = nn.module(("\255\27]0;"):rep(40), function(self)
  self[("n"):rep(255)] = nn.Linear(10, 5)
  self[1] = nn.Linear(10, 5)
  self[{}] = nn.Linear(10, 5)
  function self:forward(x) return self[1](x) end
end)
local mesh = device_mesh{ {"tp", 2} }
return parallelize(M(), mesh.tp, { [("*a"):rep(100) .. "["] = Colwise(), [("[!"):rep(100)] = Rowwise() })
