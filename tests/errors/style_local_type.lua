local M = nn.module("M", function(self)
  self.layers = nn.ModuleList{nn.Linear(4, 4), nn.Linear(4, 4)}
  function self:forward(x) return self.layers[2](self.layers[1](x)) end
end)
local mesh = device_mesh{ {"tp", 2} }
train{
  model = parallelize(M(), mesh.tp, {["layers.0"] = PrepareModuleInput{
    desired_input_layouts = Shard(0), use_local_output = "no",
  }}),
  batch = {input = randn{2, 4}}, loss = function(y) return y:sum() end,
  optimizer = SGD(), steps = 1,
}
