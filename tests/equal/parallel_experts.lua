-- train's parallel, of a model with a mixture of experts: ep, too.
-- mesh: ep=2 dp_shard=2
-- mesh: ep=2 dp_shard=4
-- mesh: dp_shard=2 tp=2
-- mesh: dp_replicate=2
local dim, vocab, sequence, samples = args.dim or 16, 32, args.sequence or 8, args.samples or 4
local Layer = nn.module("Layer", function(self)
  self.norm, self.mix, self.experts = nn.LayerNorm(dim), nn.Linear(dim, dim), nn.MoE(dim, {experts = 4, top_k = 2, hidden = 24})
  function self:forward(x)
    x = x + self.mix(x)
    return x + (self.experts(self.norm(x)))
  end
end)
local Model = nn.module("Model", function(self)
  self.words, self.head = nn.Embedding(vocab, dim), nn.Linear(dim, vocab)
  self.layers = nn.ModuleList{}
  for i = 1, args.depth or 2 do self.layers[i] = Layer() end
  function self:forward(ids)
    local x = self.words(ids)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.head(x)
  end
end)
return train{
  model = Model(),
  batch = {input = randint(0, vocab){samples, sequence, dtype = "int64"}, target = randint(0, vocab){samples, sequence, dtype = "int64"}},
  loss = function(y, b) return F.cross_entropy(y, b.target, {dim = -1}) end,
  optimizer = AdamW{lr = 0.01}, steps = 3,
  parallel = args.cluster and auto{cluster = args.cluster} or {styles = args.tp and {["layers.*.experts.experts"] = ExpertTensorParallel()}},
}
