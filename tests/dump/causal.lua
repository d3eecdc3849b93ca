-- args: --dump=cut_time
local mesh = device_mesh{tp = 2}
local Model = nn.module("Model", function(self)
  self.words, self.places = nn.Embedding(12, 8), nn.Embedding(6, 8)
  self.conv, self.output = nn.Conv1d(8, 8, 3, {groups = 8, padding = 2, bias = false}), nn.Linear(8, 12)
  function self:forward(tokens)
    local x = self.words(tokens) + self.places(F.arange(6))
    x = x + self.conv(x:transpose(1, 2)):narrow(2, 0, 6):transpose(1, 2)
    x = x + F.pad(x, {0, 0, 1, 0}):narrow(1, 0, 6):cumsum(1)
    local y = x:view(1, 6, 2, 4):transpose(1, 2)
    y = F.scaled_dot_product_attention(y, y, y, {is_causal = true, window = 3})
    return self.output(y:transpose(1, 2):reshape(1, 6, 8))
  end
end)
local model = Model()
parallelize(model, mesh.tp, {output = Colwise()})
return generate{model = model, vocab = 12, context = 6, prefill = 4, slots = 3}
