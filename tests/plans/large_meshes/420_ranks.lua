local mesh = device_mesh{ {"a", 5, bandwidth = 25e9}, {"b", 7, bandwidth = 25e9}, {"c", 3, bandwidth = 4e11, latency = 1e-6}, {"d", 2, bandwidth = 4e11, latency = 1e-6}, {"e", 1, bandwidth = 25e9}, {"f", 2} }
local Block = attention_block{batch = 6, seq = 6, heads = 2, dim = 60, hidden = 16,
  last = function(x) return x + x:cumsum(1) end}
local model = stacked(Block, 4, 60, 60)
model = parallelize(model, mesh.a, {["layers.*.wq"] = Colwise(), ["layers.*.up"] = Colwise(), ["layers.*.wo"] = Rowwise(), ["layers.*.norm"] = SequenceParallel{sequence_dim = 1}})
model = parallelize(model, mesh.d, {["layers.*.wq"] = Colwise(), ["layers.*.wk"] = Rowwise(), ["layers.*.up"] = Colwise(), ["layers.*.wo"] = Rowwise{output_layouts = Shard(1)}, ["layers.*.norm"] = SequenceParallel{sequence_dim = 1}, ["out"] = Rowwise()})
model = parallelize(model, mesh.b, {["layers.*.wq"] = Colwise(), ["layers.*.wk"] = Rowwise(), ["layers.*.wv"] = Rowwise(), ["layers.*.up"] = Colwise(), ["layers.*.wo"] = Rowwise()})
for _, layer in ipairs(model.layers) do fully_shard(layer, mesh{"c", "e"}) end
fully_shard(model, mesh{"c", "e"})
return train{ model = model, batch = distribute({input = randn{6, 6, 60}, target = randn{6, 6, 60}}, mesh{"c", "e"}, {Shard(0), Shard(0)}), loss = function(out, batch) return F.mse_loss(out, batch.target) end, optimizer = AdamW{lr = 0.1}, steps = 1, accumulate = 2, checkpoint = "layer" }
