local mesh = device_mesh{ {"a", 2, bandwidth = 4e11, latency = 1e-6}, {"b", 7, bandwidth = 4e11, latency = 1e-6}, {"c", 6}, {"d", 4, bandwidth = 4e11, latency = 1e-6} }
local Block = attention_block{batch = 16, seq = 4, heads = 4, dim = 24, hidden = 24,
  last = function(x) return x:softmax(-1) end}
local model = stacked(Block, 2, 24, 24)
model = parallelize(model, mesh.c, {["layers.*.wq"] = Colwise(), ["layers.*.up"] = Colwise(), ["layers.*.wo"] = Rowwise{output_layouts = Shard(0)}, ["layers.*.norm"] = SequenceParallel{sequence_dim = 1}, ["out"] = Rowwise()})
model = parallelize(model, mesh.b, {["layers.*.wq"] = Colwise(), ["layers.*.wk"] = Rowwise(), ["layers.*.wv"] = Colwise(), ["layers.*.up"] = Colwise(), ["layers.*.wo"] = Rowwise(), ["layers.*.down"] = Rowwise(), ["layers.*.norm"] = SequenceParallel{sequence_dim = 1}, ["out"] = Colwise()})
model = parallelize(model, mesh.d, {["layers.*.wq"] = Rowwise(), ["layers.*.wk"] = Rowwise(), ["layers.*.wv"] = Colwise(), ["layers.*.up"] = Rowwise(), ["layers.*.wo"] = Rowwise(), ["layers.*.down"] = Colwise(), ["layers.*.norm"] = SequenceParallel{sequence_dim = 1}})
return train{ model = model, batch = {input = randn{16, 4, 24}, target = randn{16, 4, 24}}, loss = function(out, batch) return F.mse_loss(out, batch.target) end, optimizer = AdamW{lr = 0.1}, steps = 1 }
