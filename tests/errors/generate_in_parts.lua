-- A program that generates keeps caches of whole sequences.
local mesh = device_mesh{ {"cp", 2} }
local Model = nn.module("Model", function(self)
  self.embedding, self.cache, self.output = nn.Embedding(16, 8), nn.KVCache(), nn.Linear(8, 16)
  function self:forward(tokens)
    local x = self.embedding(tokens):unsqueeze(1)
    return self.output(self.cache(x, x, x):squeeze(1))
  end
end)
return generate{
  model = context_parallel(Model(), mesh.cp), vocab = 16, context = 64,
  forward = function(model, tokens, positions, last) return model(tokens):index_select(1, last) end,
}
