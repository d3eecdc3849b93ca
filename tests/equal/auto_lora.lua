-- auto() of a model with adapters: all of it is placed, and trains as on one rank; also beside styles that the plan states.
-- mesh: a=2 b=2
-- mesh: a=2 b=2 pinned=true
-- mesh: a=1 b=4
local mesh = device_mesh{{"a", args.a or 1}, {"b", args.b or 1}}
local dim, hidden, vocab, no = 64, 128, 64, {bias = false}
local Block = nn.module("Block", function(self)
  self.norm, self.w1, self.w2 = nn.RMSNorm(dim), nn.Linear(dim, hidden, no), nn.Linear(hidden, dim, no)
  function self:forward(x) return x + self.w2(F.silu(self.w1(self.norm(x)))) end
end)
local Model = nn.module("Model", function(self)
  self.embedding, self.head, self.layers = nn.Embedding(vocab, dim), nn.Linear(dim, vocab, no), nn.ModuleList{}
  for i = 1, 3 do self.layers[i] = Block() end
  function self:forward(ids)
    local x = self.embedding(ids)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.head(x)
  end
end)
local batch = {input = randint(0, vocab){4, 8, dtype = "int64"}, target = randint(0, vocab){4, 8, dtype = "int64"}}
batch = distribute(batch, mesh.a, Shard(0))
local model = Model()
lora(model, {rank = 4, match = "layers.*.w*"})
parallelize(model, mesh, args.pinned and {["layers.*.w1"] = Colwise(), ["**"] = auto()} or auto())
return train{
  model = model, batch = batch,
  loss = function(y, b) return F.cross_entropy(y:flatten(0, 1), b.target:flatten()) end,
  optimizer = AdamW{lr = 0.01}, steps = 3,
}
