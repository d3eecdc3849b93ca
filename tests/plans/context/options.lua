-- Layers of attention, each with other options, over sequences that are cut over -D cp ranks. -D how=kept: the
-- options that every method keeps; -D how=scores: an added bias and dropout, and bias, dropout alone. -D context=
-- -D balance= as in plans/llama3.lua; -D heads=2: heads are exchanged over two more ranks.
local WIDTH, HEADS, LENGTH, BATCH = 16, 4, 11, 2
local cp, heads, how = args.cp or 1, args.heads or 1, args.how or "kept"
local mesh = heads > 1 and device_mesh{ {"cp", cp}, {"heads", heads} } or device_mesh{ {"cp", cp} }
local cut = {}
for i = 1, heads > 1 and 2 or 1 do cut[i] = Shard(1) end

local LAYERS = {
  kept = {
    {is_causal = true},
    {is_causal = true, window = 3, softcap = 0.5, sinks = true},
    {window = 2, padded = true},
    {is_causal = true, documents = true, window = 5},
    {padded = true, softcap = 1.5, sinks = true},
  },
  scores = { {bias = true}, {is_causal = true, dropout_p = 0.25}, {bias = true, padded = true} },
  bias = { {bias = true} },
  dropout = { {dropout_p = 0.25} },
}

local Layer = nn.module("Layer", function(self, options)
  local function linear() return nn.Linear(WIDTH, WIDTH, {bias = false}) end
  self.q, self.k, self.v, self.o = linear(), linear(), linear(), linear()
  if options.sinks then self.sinks = nn.Parameter(zeros{HEADS}) end
  if options.bias then self.bias = nn.Parameter(zeros{1, HEADS, LENGTH, LENGTH}) end
  function self:forward(x, tokens)
    local function heads(y) return y:unflatten(-1, HEADS, -1):transpose(1, 2) end
    local mask = options.padded and tokens:gt(1):view(BATCH, 1, 1, LENGTH) or nil
    if options.bias then mask = mask and F.where(mask, self.bias, -math.huge) or self.bias end
    local y = F.scaled_dot_product_attention(heads(self.q(x)), heads(self.k(x)), heads(self.v(x)), {
      is_causal = options.is_causal, window = options.window, softcap = options.softcap, sinks = self.sinks,
      attn_mask = mask, documents = options.documents and tokens:documents(7) or nil, dropout_p = options.dropout_p})
    return x + self.o(y:transpose(1, 2):flatten(2))
  end
end)

local Model = nn.module("Model", function(self)
  self.places = nn.Embedding(LENGTH, WIDTH)
  local layers = {}
  for i, options in ipairs(LAYERS[how]) do layers[i] = Layer(options) end
  self.layers = nn.ModuleList(layers)
  function self:forward(x, tokens)
    x = x + self.places(tokens:positions())
    for _, layer in ipairs(self.layers) do x = layer(x, tokens) end
    return x
  end
end)

local model = Model()
local method = args.context or "ring"
context_parallel(model, mesh, {method = heads > 1 and {method, "ulysses"} or method, balance = args.balance})
return train{
  model = model,
  batch = distribute({input = randn{BATCH, LENGTH, WIDTH}, target = randn{BATCH, LENGTH, WIDTH},
    tokens = randint(0, 9){BATCH, LENGTH}}, mesh, cut),
  forward = function(model, batch) return model(batch.input, batch.tokens) end,
  loss = function(y, batch) return F.mse_loss(y, batch.target) end,
  optimizer = AdamW{lr = 1e-2}, steps = 5,
}
