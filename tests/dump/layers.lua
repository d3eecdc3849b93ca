-- args: -D dp=2
-- Equal layers with a residual: folded into one function, forward and backward.
local Block = nn.module("Block", function(self, dim, hidden)
  self.up   = nn.Linear(dim, hidden)
  self.act  = nn.SiLU()
  self.down = nn.Linear(hidden, dim)
  function self:forward(x) return x + self.down(self.act(self.up(x))) end
end)
local Model = nn.module("Model", function(self)
  local blocks = {}
  for i = 1, args.layers or 4 do blocks[i] = Block(8, 24) end
  self.first = nn.Linear(6, 8)
  self.layers = nn.ModuleList(blocks)
  self.last = nn.Linear(8, 3)
  function self:forward(x)
    x = self.first(x)
    for _, b in ipairs(self.layers) do x = b(x) end
    return self.last(x)
  end
end)
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 2} }
local model = parallelize(Model(), mesh.tp, { ["layers.*.up"] = Colwise(), ["layers.*.down"] = Rowwise() })
local batch = distribute({ input = randn{12, 6}, target = randn{12, 3} }, mesh.dp, Shard(0))
return train{ model = model, batch = batch, loss = function(o, b) return (o - b.target):var() end, optimizer = AdamW{ lr = 0.01 }, steps = 10, seed = 1 }
