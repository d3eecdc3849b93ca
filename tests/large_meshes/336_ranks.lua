local mesh = device_mesh{ {"a", 2, bandwidth = 4e11, latency = 1e-6}, {"b", 7, bandwidth = 4e11, latency = 1e-6}, {"c", 6}, {"d", 4, bandwidth = 4e11, latency = 1e-6} }
local Block = nn.module("Block", function(self)
  self.norm = nn.LayerNorm(24)
  self.wq, self.wk, self.wv, self.wo = nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 24)
  self.up, self.down = nn.Linear(24, 24), nn.Linear(24, 24)
  function self:forward(x)
    local h = self.norm(x)

    local q = self.wq(h):view(16, 4, 4, 6):transpose(1, 2)
    local k = self.wk(h):view(16, 4, 4, 6):transpose(1, 2)
    local v = self.wv(h):view(16, 4, 4, 6):transpose(1, 2)
    h = F.scaled_dot_product_attention(q, k, v):transpose(1, 2):reshape(16, 4, 24)

    x = x + self.wo(h)
    x = x + self.down(F.gelu(self.up(self.norm(x))))

    x = x:softmax(-1)

    return x
  end
end)
local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{Block(), Block()}
  self.out = nn.Linear(24, 24)
  function self:forward(x)
    for _, l in ipairs(self.layers) do x = l(x) end
    return self.out(x)
  end
end)
local model = Model()
model = parallelize(model, mesh.c, {["layers.*.wq"] = Colwise(), ["layers.*.up"] = Colwise(), ["layers.*.wo"] = Rowwise{output_layouts = Shard(0)}, ["layers.*.norm"] = SequenceParallel{sequence_dim = 1}, ["out"] = Rowwise()})
model = parallelize(model, mesh.b, {["layers.*.wq"] = Colwise(), ["layers.*.wk"] = Rowwise(), ["layers.*.wv"] = Colwise(), ["layers.*.up"] = Colwise(), ["layers.*.wo"] = Rowwise(), ["layers.*.down"] = Rowwise(), ["layers.*.norm"] = SequenceParallel{sequence_dim = 1}, ["out"] = Colwise()})
model = parallelize(model, mesh.d, {["layers.*.wq"] = Rowwise(), ["layers.*.wk"] = Rowwise(), ["layers.*.wv"] = Colwise(), ["layers.*.up"] = Rowwise(), ["layers.*.wo"] = Rowwise(), ["layers.*.down"] = Colwise(), ["layers.*.norm"] = SequenceParallel{sequence_dim = 1}})
return train{ model = model, batch = {input = randn{16, 4, 24}, target = randn{16, 4, 24}}, loss = function(out, batch) return F.mse_loss(out, batch.target) end, optimizer = AdamW{lr = 0.1}, steps = 1 }
