-- train's parallel, of networks in a list: what its options say computes what one rank does. -D cluster=FILE: tpgen finds
-- them (tests/scripts/programs/parallel_plan.sh).
-- mesh: tp=2
-- mesh: dp_replicate=2 zero=2
-- mesh: dp_shard=2 tp=2
-- mesh: pp=2 microbatches=3 schedule=interleaved_1f1b
-- mesh: dp_replicate=2 dp_shard=2 checkpoint=layer
-- mesh: dp_replicate=3 pp=2 zero=1
local width = args.width or 24
local Block = nn.module("Block", function(self)
  self.norm = nn.LayerNorm(width)
  self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
  function self:forward(x) return x + self.down(F.relu(self.up(self.norm(x)))) end
end)
local Model = nn.module("Model", function(self)
  self.first, self.last = nn.Linear(12, width), nn.Linear(width, 10)
  self.layers = nn.ModuleList{}
  for i = 1, args.depth or 4 do self.layers[i] = Block() end
  function self:forward(x)
    x = self.first(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.last(x)
  end
end)
local samples = args.samples or 12
return train{
  model = Model(), batch = {input = randn{samples, 12}, target = randint(0, 10){samples, dtype = "int64"}},
  loss = function(y, b) return F.cross_entropy(y, b.target) end,
  optimizer = AdamW{lr = 0.01}, steps = 3, clip = 1.0,
  parallel = args.cluster and auto{cluster = args.cluster} or {styles = args.tp and {
    ["layers.*.up"] = Colwise(), ["layers.*.down"] = Rowwise(),
  }},
}
