local Model = nn.module("Model", function(self)
  self.embed = nn.Embedding(9, 10)
  self.proj = nn.Linear(10, 32)
  function self:forward(x)
    return self.proj(self.embed(x))
  end
end)

local mesh = device_mesh{ {"tp", 2} }
local model = Model()
parallelize(model, mesh.tp, {["proj"] = Colwise{parts = 3}})
