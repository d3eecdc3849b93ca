local mesh = device_mesh{ {"a", 5, bandwidth = 25e9}, {"b", 7, bandwidth = 25e9}, {"c", 3, bandwidth = 4e11, latency = 1e-6}, {"d", 2, bandwidth = 4e11, latency = 1e-6}, {"e", 1, bandwidth = 25e9}, {"f", 2} }
local Block = nn.module("Block", function(self)
  self.norm = nn.LayerNorm(60)
  self.wq, self.wk, self.wv, self.wo = nn.Linear(60, 60), nn.Linear(60, 60), nn.Linear(60, 60), nn.Linear(60, 60)
  self.up, self.down = nn.Linear(60, 16), nn.Linear(16, 60)
  function self:forward(x)
    local h = self.norm(x)

    local q = self.wq(h):view(6, 6, 2, 30):transpose(1, 2)
    local k = self.wk(h):view(6, 6, 2, 30):transpose(1, 2)
    local v = self.wv(h):view(6, 6, 2, 30):transpose(1, 2)
    h = F.scaled_dot_product_attention(q, k, v):transpose(1, 2):reshape(6, 6, 60)

    x = x + self.wo(h)
    x = x + self.down(F.gelu(self.up(self.norm(x))))

    x = x + x:cumsum(1)

    return x
  end
end)
local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{Block(), Block(), Block(), Block()}
  self.out = nn.Linear(60, 60)
  function self:forward(x)
    for _, l in ipairs(self.layers) do x = l(x) end
    return self.out(x)
  end
end)
local model = Model()
model = parallelize(model, mesh.a, {["layers.*.wq"] = Colwise(), ["layers.*.up"] = Colwise(), ["layers.*.wo"] = Rowwise(), ["layers.*.norm"] = SequenceParallel{sequence_dim = 1}})
model = parallelize(model, mesh.d, {["layers.*.wq"] = Colwise(), ["layers.*.wk"] = Rowwise(), ["layers.*.up"] = Colwise(), ["layers.*.wo"] = Rowwise{output_layouts = Shard(1)}, ["layers.*.norm"] = SequenceParallel{sequence_dim = 1}, ["out"] = Rowwise()})
model = parallelize(model, mesh.b, {["layers.*.wq"] = Colwise(), ["layers.*.wk"] = Rowwise(), ["layers.*.wv"] = Rowwise(), ["layers.*.up"] = Colwise(), ["layers.*.wo"] = Rowwise()})
for _, layer in ipairs(model.layers) do fully_shard(layer, mesh{"c", "e"}) end
fully_shard(model, mesh{"c", "e"})
return train{ model = model, batch = distribute({input = randn{6, 6, 60}, target = randn{6, 6, 60}}, mesh{"c", "e"}, {Shard(0), Shard(0)}), loss = function(out, batch) return F.mse_loss(out, batch.target) end, optimizer = AdamW{lr = 0.1}, steps = 1, accumulate = 2, checkpoint = "layer" }
