-- What is computed again before its backward: layers that hold lists of their own, with dropouts and
-- collectives. Meshes with checkpoint=layer are compared with one rank that keeps all.
-- mesh: checkpoint=layer
-- mesh: checkpoint=selective
-- mesh: tp=2 checkpoint=layer
-- mesh: tp=2 checkpoint=selective
-- mesh: tp=3
-- mesh: dp=2 tp=2 checkpoint=layer
-- mesh: dp=2 tp=2 checkpoint=selective
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local WIDTH, HIDDEN = 8, 12

local Branch = nn.module("Branch", function(self)
  self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
  self.dropout = nn.Dropout(0.3)
  function self:forward(x) return self.down(self.dropout(F.gelu(self.up(x)))) end
end)

local Block = nn.module("Block", function(self)
  self.norm = nn.LayerNorm(WIDTH)
  self.branches = nn.ModuleList{Branch(), Branch()}
  self.dropout = nn.Dropout(0.2)
  function self:forward(x)
    local h = self.norm(x)
    return x + self.dropout(self.branches[1](h) * self.branches[2](h))
  end
end)

local Model = nn.module("Model", function(self)
  self.first, self.last = nn.Linear(6, WIDTH), nn.Linear(WIDTH, 3)
  self.layers = nn.ModuleList{Block(), Block(), Block(), Block()}
  function self:forward(x)
    x = F.silu(self.first(x))
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.last(F.sigmoid(x))
  end
end)

local model = parallelize(Model(), mesh.tp, {
  first = PrepareModuleInput{
    input_layouts = Replicate(), desired_input_layouts = Shard(1),
  },
  ["layers.*"] = {
    norm = SequenceParallel(),
    ["branches.*"] = PrepareModuleInput{
      input_layouts = Shard(1), desired_input_layouts = Replicate(),
    },
    ["branches.*.up"] = Colwise(),
    ["branches.*.down"] = Rowwise{output_layouts = Shard(1)},
  },
})
local batch = distribute({ input = randn{4, 5, 6}, target = randn{4, 5, 3} }, mesh.dp, Shard(0))

return train{
  model = model, batch = batch,
  loss = function(output, batch) return (output - batch.target):square():mean() end,
  optimizer = AdamW{lr = 0.02, eps = 1e-3},
  steps = 4, seed = 23, checkpoint = args.checkpoint,
}
