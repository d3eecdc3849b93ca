-- train's parallel, of convolutions without any list: its units and its stages are the modules of the model.
-- mesh: dp_shard=2
-- mesh: pp=2 microbatches=2
-- mesh: dp_replicate=2 pp=2
-- mesh: tp=2
local Model = nn.module("Model", function(self)
  self.stem = nn.Sequential(nn.Conv2d(3, 8, {kernel_size = 3, padding = 1}), nn.GroupNorm(2, 8), nn.ReLU())
  self.body = nn.Sequential(nn.Conv2d(8, 16, {kernel_size = 3, padding = 1, stride = 2}), nn.GroupNorm(4, 16), nn.ReLU())
  self.more = nn.Conv2d(16, 16, {kernel_size = 3, padding = 1})
  self.head = nn.Linear(16, 6)
  function self:forward(x)
    x = self.body(self.stem(x))
    x = x + F.relu(self.more(x))
    return self.head(x:mean({2, 3}))
  end
end)
local samples, size = args.samples or 6, args.size or 8
return train{
  model = Model(), batch = {input = randn{samples, 3, size, size}, target = randint(0, 6){samples, dtype = "int64"}},
  loss = function(y, b) return F.cross_entropy(y, b.target) end,
  optimizer = AdamW{lr = 0.01}, steps = 3,
  parallel = args.cluster and auto{cluster = args.cluster} or {styles = args.tp and {more = ModuleLayouts{parameters = {weight = Shard(0), bias = Shard(0)}}}},
}
