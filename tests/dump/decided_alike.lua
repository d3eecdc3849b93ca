-- The views of the backward are those of the forward, with other prices: what the forward cuts, the backward gathers.
local mesh = device_mesh{ {"tp", 2} }
local Attention = nn.module("Attention", function(self)
  self.norm, self.q, self.k, self.v, self.o = nn.RMSNorm(8), nn.Linear(8, 6), nn.Linear(8, 6), nn.Linear(8, 6), nn.Linear(6, 8)
  function self:forward(x)
    local h = self.norm(x)
    local function heads(t) return t:unflatten(-1, -1, 2):transpose(1, 2) end
    local y = F.scaled_dot_product_attention(heads(self.q(h)), heads(self.k(h)), heads(self.v(h)), {is_causal = true})
    return x + self.o(y:transpose(1, 2):flatten(2))
  end
end)
local Net = nn.module("Net", function(self)
  self.words, self.layers, self.out = nn.Embedding(24, 8), nn.ModuleList{Attention()}, nn.Linear(8, 24)
  function self:forward(x)
    x = self.words(x)
    for _, l in ipairs(self.layers) do x = l(x) end
    return self.out(x)
  end
end)
local model = Net()
local batch = {input = randint(0, 24){12, 5}, target = randint(0, 24){12, 5}}
parallelize(model, mesh.tp, {["layers.0.q"] = Colwise{output_layouts = Replicate()}, ["layers.0.k"] = Colwise{output_layouts = Replicate()}, ["layers.0.v"] = Colwise{output_layouts = Replicate()}, ["layers.0.o"] = Rowwise()})
return train{ model = model, batch = batch, loss = function(out, batch) return F.cross_entropy(out, batch.target, {dim = -1}) end, optimizer = SGD{}, steps = 1 }
