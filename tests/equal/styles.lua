-- The styles, each on what it is for: embeddings by columns and by rows, norms and dropout along the
-- sequence, inputs and outputs prepared, several tensors among them; the batch over part of a mesh.
-- mesh: tp=3
-- mesh: dp=2 tp=2
-- mesh: pod=2 tp=2
local mesh = device_mesh{ {"pod", args.pod or 1}, {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local normal = nn.init.normal(0, 0.3)

local Mix = nn.module("Mix", function(self)
  self.up = nn.Linear(6, 9, {init = normal})
  self.down = nn.Linear(9, 6, {bias = false, init = normal})
  function self:forward(x, y) return self.down(self.up(x + y):gelu()), x * y end
end)

local Block = nn.module("Block", function(self)
  self.norm, self.dropout = nn.LayerNorm(6), nn.Dropout(0.2)
  self.gain, self.mix = nn.RMSNorm(6), Mix()
  function self:forward(x)
    local a, b = self.mix(self.norm(x), self.gain(x))
    return x + self.dropout(a) + b
  end
end)

local Model = nn.module("Model", function(self)
  self.words = nn.Embedding(11, 6, {init = normal})
  self.places = nn.Embedding(5, 6, {init = normal})
  self.blocks = nn.ModuleList{Block(), Block()}
  self.head = nn.Linear(6, 11)
  function self:forward(ids)
    local x = self.words(ids) + self.places(F.arange(5))
    for _, block in ipairs(self.blocks) do x = block(x) end
    return self.head(x)
  end
end)

local model = parallelize(Model(), mesh.tp, {
  words = Rowwise{input_layouts = Replicate(), output_layouts = Shard(1)},
  places = Colwise{output_layouts = Replicate(), use_local_output = true},
  ["blocks.*"] = {
    ["norm"] = SequenceParallel{use_local_output = false},
    ["gain"] = SequenceParallel{sequence_dim = -2},
    ["dropout"] = SequenceParallel(),
    ["mix"] = PrepareModuleInputOutput{
      input_layouts = {Shard(1), Shard(1)}, desired_input_layouts = {Replicate(), Replicate()},
      desired_output_layouts = {Shard(1), false},
    },
    ["mix.up"] = Colwise(),
    ["mix.down"] = Rowwise{output_layouts = Partial()},
  },
  head = Colwise{output_layouts = Replicate(), use_local_output = true},
})
parallelize(model, mesh["dp"], PrepareModuleOutput{
  output_layouts = Shard(0), desired_output_layouts = Shard(0), use_local_output = false,
})

return train{
  model = model,
  batch = distribute({input = randint(11){4, 5}, target = randint(11){4, 5}}, mesh{"pod", "dp"},
    {Shard(0), Shard(0)}),
  loss = function(output, batch) return F.cross_entropy(output, batch.target) end,
  optimizer = SGD{lr = 0.3},
  steps = 4, seed = 5,
}
