-- Products of one input with several weights are one, and so are their gradients: q, k, v and gate, up. Also with
-- gathered weights, with layers that run again, and with batches that add up. The last layer repeats its keys and
-- values, whose gradients are sums.
-- mesh: tp=2
-- mesh: fsdp=2
-- mesh: fsdp=2 tp=2
-- mesh: tp=2 checkpoint=layer
-- mesh: fsdp=2 accumulate=2
-- mesh: tp=3
-- sanitized: fsdp=2 tp=2
-- cuda: tp=2
-- cuda: fsdp=2 tp=2
local Layer = nn.module("Layer", function(self, repeats)
  self.norm = nn.RMSNorm(8)
  self.q, self.k, self.v = nn.Linear(8, 8, {bias = false}), nn.Linear(8, 4, {bias = false}), nn.Linear(8, 4, {bias = false})
  self.o = nn.Linear(8, 8, {bias = false})
  self.gate, self.up = nn.Linear(8, 12, {bias = false}), nn.Linear(8, 12, {bias = false})
  self.down = nn.Linear(12, 8, {bias = false})
  function self:forward(x, cos, sin)
    local function heads(y) return y:unflatten(-1, -1, 2):transpose(1, 2) end
    local function repeated(y) return y:unsqueeze(2):expand(-1, -1, 2, -1):flatten(2) end
    local y, z = self.norm(x), nil
    if repeats then
      z = self.q(y) * repeated(self.k(y)) + repeated(self.v(y))
    else
      local q, k, v = heads(self.q(y)):rotary(cos, sin), heads(self.k(y)):rotary(cos, sin), heads(self.v(y))
      z = F.scaled_dot_product_attention(q, k, v, {is_causal = true, enable_gqa = true})
      z = z:transpose(1, 2):flatten(2)
    end
    x = x + self.o(z)
    y = self.norm(x)
    return x + self.down(F.silu(self.gate(y)) * self.up(y))
  end
end)

local Model = nn.module("Model", function(self)
  self.first, self.layers = nn.Linear(8, 8, {bias = false}), nn.ModuleList{Layer(), Layer()}
  self.last = Layer(true)
  function self:forward(x)
    local cos, sin = F.rotary_tables(5, 2)
    x = self.first(x)
    for _, layer in ipairs(self.layers) do x = layer(x, cos, sin) end
    return self.last(x, cos, sin)
  end
end)

local mesh = device_mesh{ {"fsdp", args.fsdp or 1}, {"tp", args.tp or 1} }
local model = parallelize(Model(), mesh.tp, {["**.[qkv]|**.gate|**.up"] = Colwise(),
  ["**.o|**.down"] = Rowwise()})
for _, layer in ipairs(model.layers) do fully_shard(layer, mesh.fsdp) end
fully_shard(model.last, mesh.fsdp)
return train{
  model = model,
  batch = distribute({input = randn{4, 5, 8}, target = randn{4, 5, 8}}, mesh.fsdp, Shard(0)),
  loss = function(output, batch) return (output - batch.target):square():mean() end,
  optimizer = AdamW{lr = 0.01}, steps = 4, checkpoint = args.checkpoint, accumulate = args.accumulate,
}
