local mesh = device_mesh{ {"pp", 2} }
local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{nn.Linear(4, 4), nn.Linear(4, 4)}
  function self:forward(x) return self.layers[2](self.layers[1](x)) end
end)
return infer{model = pipeline(Model(), mesh.pp, {microbatches = 2}), batch = {input = randn{4, 4}}}
