-- Two layers of attention. -D how=window softcap sinks bias all: with which of its options.
local how = args.how or "all"
local function has(option) return how == option or how == "all" end
local WIDTH, HEADS, LENGTH, BATCH = 16, 4, 10, 4
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local function linear() return nn.Linear(WIDTH, WIDTH, {bias = false}) end

local Layer = nn.module("Layer", function(self)
  self.q, self.k, self.v, self.o = linear(), linear(), linear(), linear()
  if has("sinks") then self.sinks = nn.Parameter(zeros{HEADS}) end
  if has("bias") then self.bias = nn.Parameter(zeros{1, HEADS, LENGTH, LENGTH}) end
  function self:forward(x)
    local function heads(y) return y:unflatten(-1, HEADS, -1):transpose(1, 2) end
    local y = F.scaled_dot_product_attention(heads(self.q(x)), heads(self.k(x)), heads(self.v(x)), {
      is_causal = not has("bias"), attn_mask = has("bias") and self.bias or nil,
      window = has("window") and 3 or nil, softcap = has("softcap") and 0.5 or nil,
      sinks = has("sinks") and self.sinks or nil,
    })
    return x + self.o(y:transpose(1, 2):flatten(2))
  end
end)

local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{Layer(), Layer()}
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return x
  end
end)

local model = parallelize(Model(), mesh.tp, {["layers.*.[qkv]"] = Colwise(), ["layers.*.o"] = Rowwise()})
fully_shard(model, mesh.dp)

return train{
  model = model,
  batch = distribute({input = randn{BATCH, LENGTH, WIDTH}, target = randn{BATCH, LENGTH, WIDTH}}, mesh.dp, Shard(0)),
  loss = function(y, batch) return F.mse_loss(y, batch.target) end,
  optimizer = AdamW{lr = 1e-2}, steps = 20,
}
