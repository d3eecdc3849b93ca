-- Stages that differ: the first one alone has a dropout and a group of parameters; a later one reads what the embedding
-- made, so a sum of gradients comes from two stages, and with tp from moves that no stage has asked for.
-- mesh: pp=2 tp=2 microbatches=2
-- mesh: pp=2 tp=2 microbatches=4 schedule=dualpipe_v
-- cuda: pp=2 tp=2 microbatches=4 schedule=dualpipe_v
-- mesh: pp=4 microbatches=4 schedule=gpipe
-- mesh: pp=2 tp=2 microbatches=4 schedule=zbv_zero_bubble
local mesh = device_mesh{ {"tp", args.tp or 1}, {"pp", args.pp or 1} }
local WORDS, WIDTH, LENGTH = 8, 8, 4

local Block = nn.module("Block", function(self)
  self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)
  function self:forward(x) return x + self.down(F.relu(self.up(self.norm(x)))) end
end)
local Model = nn.module("Model", function(self)
  self.words, self.drop = nn.Embedding(WORDS, WIDTH), nn.Dropout(0.2)
  self.layers = nn.ModuleList{Block(), Block(), Block(), Block()}
  self.out = nn.Linear(WIDTH, WORDS)
  function self:forward(ids)
    local x = self.drop(self.words(ids))
    local first = x
    for i, layer in ipairs(self.layers) do
      if i == #self.layers then x = x + first * 0.5 end
      x = layer(x)
    end
    return self.out(x)
  end
end)

local model = parallelize(Model(), mesh.tp, {
  ["layers.*.up"] = Colwise(), ["layers.*.down"] = Rowwise{output_layouts = Shard(1)},
})
if args.pp then
  pipeline(model, mesh.pp, {microbatches = args.microbatches, schedule = args.schedule})
end

return train{
  model = model, batch = {input = randint(WORDS){12, LENGTH}, target = randint(WORDS){12, LENGTH}},
  loss = function(output, batch) return F.cross_entropy(output, batch.target, {dim = -1}) end,
  optimizer = AdamW{lr = 0.02, eps = 1e-3}, groups = {{match = "words.*", optimizer = SGD{lr = 0.5}}}, steps = 3, seed = 7,
}
