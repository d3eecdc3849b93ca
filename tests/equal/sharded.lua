-- Units of fully_shard: an embedding whose weight is the output's too, layers that read a parameter from
-- outside of their list and one whose parameter is read there, a parameter that is a single number, one
-- that is not trained, sizes that do not divide and shards without an element, on meshes with copies and
-- under tensor parallel.
-- mesh: dp=3 checkpoint=layer
-- cuda: dp=3 checkpoint=layer
-- mesh: dp=4 keep=true
-- sanitized: dp=4 keep=true
-- mesh: copies=2 dp=2
-- mesh: copies=2 dp=2 tp=2 dim=-1
local mesh = device_mesh{ {"copies", args.copies or 1}, {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local WIDTH, WORDS = 6, 11

local Branch = nn.module("Branch", function(self)
  self.up, self.down = nn.Linear(WIDTH, 7), nn.Linear(7, WIDTH)
  function self:forward(x) return self.down(F.gelu(self.up(x))) end
end)

local Layer = nn.module("Layer", function(self)
  self.norm = nn.LayerNorm(WIDTH)
  self.branches = nn.ModuleList{Branch(), Branch()}
  self.scale = nn.Parameter{init = nn.init.constant(0.5)}
  function self:forward(x, gain)
    local h = self.norm(x) * gain
    return x + self.scale * self.branches[1](h) + F.dropout(self.branches[2](h), 0.2)
  end
end)

local Model = nn.module("Model", function(self)
  self.table = nn.Embedding(WORDS, WIDTH)
  self.gain = nn.Parameter{WIDTH, init = nn.init.uniform(0.5, 1.5)}
  self.layers = nn.ModuleList{Layer(), Layer(), Layer()}
  self.norm = nn.RMSNorm(WIDTH)
  self.bias = nn.Parameter{3, 1, init = nn.init.uniform(-1, 1)}
  self.unused = nn.Linear(3, 5)
  function self:forward(ids)
    local x = self.table(ids)
    for _, layer in ipairs(self.layers) do x = layer(x, self.gain) end
    return F.linear(self.norm(x) * self.layers[2].norm.weight, self.table.weight) * (2 + self.bias:sum())
  end
end)

local model = parallelize(Model(), mesh.tp, {
  ["layers.*"] = PrepareModuleInput{desired_input_layouts = {false, Replicate()}},
  ["layers.*.branches.*"] = {up = Colwise(), down = Rowwise()},
})
local sharded = mesh{"copies", "dp"}
local how = {reshard_after_forward = not args.keep, shard_dim = args.dim}
fully_shard(model.table, sharded, how)
for _, layer in ipairs(model.layers) do
  fully_shard(layer.branches[2], sharded, how)
  fully_shard(layer, sharded, how)
end
fully_shard(model, sharded, {reshard_after_forward = not args.keep})

return train{
  model = model,
  batch = distribute({input = randint(WORDS){5, 4}, target = randint(WORDS){5, 4}}, sharded,
    {Shard(0), Shard(0)}),
  loss = function(output, batch) return F.cross_entropy(output, batch.target) end,
  optimizer = AdamW{lr = 0.03},
  checkpoint = args.checkpoint,
  clip = 0.5,
  steps = 5, seed = 3,
}
