-- Values that lie in memory in another order than they are written in: the sequence is outermost where it
-- is gathered, scattered, sliced or exchanged for heads, though the batch stands before it; copies are left
-- where a kernel of its own, or a view that merges the two, wants it otherwise.
-- mesh: tp=2
-- mesh: tp=3
-- sanitized: tp=3
-- mesh: dp=2 tp=2
-- cuda: dp=2 tp=2
-- mesh: dp=2 tp=3
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local WIDTH, HEADS, LENGTH = 24, 6, 8

-- Heads for a part of the sequence become some heads for all of it, and back.
local Mix = nn.module("Mix", function(self)
  self.norm = nn.RMSNorm(WIDTH)
  self.q, self.v = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, {bias = false})
  self.drop = nn.Dropout(0.2)
  local function heads(x) return x:unflatten(-1, HEADS, -1):redistribute(mesh.tp, Shard(2)):transpose(1, 2) end
  function self:forward(x)
    x = self.norm(x)
    local q, v = heads(self.q(x)), heads(self.v(x))
    local y = F.scaled_dot_product_attention(q, q, v, {causal = true})
    return self.drop(y:transpose(1, 2):redistribute(mesh.tp, Shard(1)):flatten(2))
  end
end)

local Gate = nn.module("Gate", function(self)
  self.up, self.down = nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)
  function self:forward(x)
    local h = self.up(x)
    return self.down(h:sigmoid() * h:cumsum(1) / LENGTH)
  end
end)

local Block = nn.module("Block", function(self)
  self.mix, self.gate = Mix(), Gate()
  function self:forward(x)
    x = x + self.mix(x)
    return x + self.gate(x)
  end
end)

local Model = nn.module("Model", function(self)
  self.embedding = nn.Embedding(9, WIDTH)
  self.blocks = nn.ModuleList{Block(), Block()}
  self.merge, self.output = nn.Linear(WIDTH, 6), nn.Linear(6, 9)
  function self:forward(ids)
    local x = self.embedding(ids)
    for _, block in ipairs(self.blocks) do x = block(x) end
    x = self.merge(x:redistribute(mesh.tp, Replicate()))
    x = x:tanh():redistribute(mesh.tp, Shard(2)):redistribute(mesh.tp, Replicate())
    return self.output(x:flatten(0, 1))
  end
end)

return train{
  model = parallelize(Model(), mesh.tp, {
    embedding = Rowwise{output_layouts = Shard(1)},
    ["blocks.*.gate.up"] = Colwise{input_layouts = Shard(1)},
    ["blocks.*.gate.down"] = Rowwise{output_layouts = Shard(1)},
  }),
  batch = distribute({input = randint(9){4, LENGTH}, target = randint(9){4, LENGTH}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.cross_entropy(output, batch.target:flatten(0, 1)) end,
  optimizer = SGD{lr = 0.3},
  steps = 5, seed = 7,
}
