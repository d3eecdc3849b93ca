-- A model that computes in float8 generates nothing: its scales are of whole texts.
local mesh = device_mesh{ {"tp", 1} }
local Model = nn.module("Model", function(self)
  self.embedding, self.output = nn.Embedding(64, 16), nn.Linear(16, 64)
  function self:forward(tokens) return self.output(self.embedding(tokens)) end
end)
return generate{model = float8(Model()), vocab = 64, context = 16}
