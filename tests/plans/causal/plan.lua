-- Small causal models, each by another way of looking at earlier tokens. With -D whole=true the program runs them over whole
-- texts, [texts, tokens], and writes all logits: what a program that generates must agree with. -D kind=random draws a model
-- of some of these ways, and of others: some of them look ahead.

local args = settings{
  {"kind", "mixed", "the model", choices = {"attention", "window", "convolution", "shift", "sum", "positions", "mixed",
    "experts", "lstm", "gru", "mamba2", "rwkv", "delta", "prefix_max", "extremes", "linear", "alibi", "softcap", "sinks",
    "chunks", "first_and_last", "written", "relative", "mean", "norm", "ahead", "chosen", "reversed", "late",
    "last_state", "blocks", "unmasked", "flipped", "random", "caches", "padding", "documents", "packed"}}, {"draw", 1, "of kind=random: which model", type = "whole"},
  {"whole", false, "over whole texts"}, {"tp", 1, "ranks"}, {"cp", 1, "ranks that share caches"}, {"tokens", 48, "of a text"}, {"texts", 2, "of whole"}, {"slots", 1, "of the caches"},
  {"prefill", 8, "tokens of a call"}, {"cache_dtype", "float32", "of the caches"},
  {"keep", "auto", "what caches keep"},
}
local dim, heads, vocab, T = 24, 6, 40, args.tokens
local mesh = device_mesh{{"cp", args.cp}, {"tp", args.tp}}

local function in_heads(x, n) -- [b, t, n * size]
  local s = x:size()
  return x:view(s[1], s[2], n, s[3] // n):transpose(1, 2)
end

-- Recurrences, x [b, t, dim].
local N, E = 3, 4 -- of the states: rows of a head; elements of one
local H = dim // E
local recurrent = {
  lstm = function(self, x) return (self.rnn(x)) end,
  gru = function(self, x) return (self.rnn(x)) end,
  last_state = function(self, x) -- every token sees the state behind the last one
    local y, last = self.rnn(x)
    return y + last:select(0, 0):unsqueeze(1)
  end,
  mamba2 = function(self, x) -- a convolution, a selective state space, a gate
    local s, t = x:size(), x:size()[2]
    local z, u, b, c, dt = self.into(x):split({dim, dim, N, N, H}, -1)
    u = F.silu(self.conv(u:transpose(1, 2)):narrow(2, 0, t):transpose(1, 2)):view(s[1], t, H, E)
    dt = F.softplus(dt + self.dt_bias)
    local a = (dt * -self.a_log:exp()):exp()
    local v = (dt:unsqueeze(-1) * u):unsqueeze(-1) * b:unsqueeze(2):unsqueeze(2)
    local _, y = F.scan(function(h, e)
      h = h * e.a:unsqueeze(-1):unsqueeze(-1) + e.v
      return h, (h * e.c:unsqueeze(1):unsqueeze(1)):sum(-1)
    end, F.zeros{s[1], H, E, N}, {a = a, v = v, c = c}, 1)
    y = y + self.skip:unsqueeze(-1) * u
    return y:reshape(s[1], t, dim) * F.silu(z)
  end,
  rwkv = function(self, x) -- a shift by a token; sums of values that decay, with a bonus for the token's own
    local t = x:size()[2]
    local before = F.pad(x, {0, 0, 1, 0}):narrow(1, 0, t)
    local m = F.sigmoid(self.mix)
    local k, v = self.wq(x * m + before * (1 - m)), self.wv2(x)
    local decay, bonus = -self.mix:exp(), self.bonus
    local _, y = F.scan(function(carry, e)
      local most = F.maximum(carry.most, e.k + bonus)
      local p, q = (carry.most - most):exp(), (e.k + bonus - most):exp()
      local out = (carry.num * p + e.v * q) / (carry.den * p + q)
      most = F.maximum(carry.most + decay, e.k)
      p, q = (carry.most + decay - most):exp(), (e.k - most):exp()
      return {num = carry.num * p + e.v * q, den = carry.den * p + q, most = most}, out
    end, {num = F.zeros{x:size()[1], dim}, den = F.zeros{x:size()[1], dim}, most = F.full({x:size()[1], dim}, -1e30)}, {k = k, v = v}, 1)
    return F.sigmoid(self.wo(x)) * y
  end,
  delta = function(self, x) -- the gated delta rule: what the key recalls is taken out of the state before its value comes in
    local s, t = x:size(), x:size()[2]
    local function unit(y) return y / ((y * y):sum(-1, true) + 1e-6):sqrt() end
    local q, k = unit(self.wq(x):view(s[1], t, H, E)), unit(self.wv2(x):view(s[1], t, H, E))
    local v = self.wo(x):view(s[1], t, H, E)
    local beta = F.sigmoid(self.gates(x):narrow(-1, 0, H))
    local g = -F.softplus(self.gates(x):narrow(-1, H, H)):exp() / 8
    local _, y = F.scan(function(h, e) -- h [b, H, key, value]
      h = h * e.g:exp():unsqueeze(-1):unsqueeze(-1)
      local seen = (h * e.k:unsqueeze(-1)):sum(2)
      h = h + e.k:unsqueeze(-1) * ((e.v - seen) * e.beta:unsqueeze(-1)):unsqueeze(2)
      return h, (h * e.q:unsqueeze(-1)):sum(2)
    end, self.first:expand{s[1], H, E, E}, {q = q, k = k, v = v, g = g, beta = beta}, 1)
    return y:reshape(s[1], t, dim)
  end,
  linear = function(self, x) -- attention without a softmax: what keys and values add up to, and what keys do
    local q, k, v = F.relu(self.gates(x)) + 0.1, F.relu(self.wv2(x)) + 0.1, self.wo(x)
    local _, y = F.scan(function(c, e)
      c = {kv = c.kv + e.k:unsqueeze(-1) * e.v:unsqueeze(1), k = c.k + e.k}
      return c, (c.kv * e.q:unsqueeze(-1)):sum(1) / (c.k * e.q):sum(-1, true)
    end, {kv = F.zeros{x:size()[1], dim, dim}, k = F.zeros{x:size()[1], dim}}, {q = q, k = k, v = v}, 1)
    return self.wq(y)
  end,
  prefix_max = function(_, x)
    local _, y = F.scan(function(m, e) m = F.maximum(m, e) return m, m end, F.full({x:size()[1], dim}, -1e30), x, 1)
    return y
  end,
}

-- Attention with other scores, and with other masks, of queries i and keys j.
local function masked(q, k, v, mask, more)
  local how = more or {}
  how.attn_mask = mask
  return F.scaled_dot_product_attention(q, k, v, how)
end
local scores = {
  alibi = function(_, q, k, v, i, j)
    local slopes = F.pow(0.5, (F.arange(heads) + 1):to("float32")):view(1, heads, 1, 1)
    return masked(q, k, v, F.where(j:le(i), slopes * (j - i):to("float32"), -math.huge))
  end,
  softcap = function(_, q, k, v) return F.scaled_dot_product_attention(q, k, v, {is_causal = true, softcap = 0.5}) end,
  sinks = function(self, q, k, v) return F.scaled_dot_product_attention(q, k, v, {is_causal = true, window = 9, sinks = self.sinks}) end,
  chunks = function(_, q, k, v, i, j) return masked(q, k, v, F.logical_and(j:le(i), (j / 8):to("int32"):eq((i / 8):to("int32")))) end,
  first_and_last = function(_, q, k, v, i, j) return masked(q, k, v, F.logical_and(j:le(i), F.logical_or(j:lt(2), j:gt(i - 5)))) end,
  written = function(_, q, k, v, i, j)
    k, v = k:repeat_interleave(2, 1), v:repeat_interleave(2, 1)
    local x = F.matmul(q, k:transpose(2, 3)) / math.sqrt(dim // heads)
    return F.matmul(F.softmax(F.where(j:le(i), x, -math.huge), -1), v)
  end,
  relative = function(self, q, k, v, i, j) -- a bias by how far back a key is, of which each query makes its own numbers
    local of = F.matmul(q, self.distances):gather(3, F.clamp(i - j, 0, 8):view(1, 1, T, T):expand{q:size()[1], heads, T, T})
    return masked(q, k, v, F.where(j:le(i), of, -math.huge))
  end,
  flipped = function(_, q, k, v, i, j) -- the mask hides others than the later ones
    k, v = k:repeat_interleave(2, 1), v:repeat_interleave(2, 1)
    return F.matmul(F.softmax(F.where(j:le(i), F.matmul(q, k:transpose(2, 3)):flip(3), -math.huge), -1), v)
  end,
  blocks = function(_, q, k, v, i, j) return masked(q, k, v, (j / 8):to("int32"):eq((i / 8):to("int32"))) end,
  unmasked = function(_, q, k, v)
    k, v = k:repeat_interleave(2, 1), v:repeat_interleave(2, 1)
    return F.matmul(F.softmax(F.matmul(q, k:transpose(2, 3)), -1), v)
  end,
}

local function mixed(self, kind, x, tokens)
  local s = x:size()
  local t = s[2]
  if kind == "convolution" or kind == "late" then
    return self.conv(x:transpose(1, 2)):narrow(2, 0, t):transpose(1, 2)
  elseif kind == "shift" then
    local before = F.pad(x, {0, 0, 1, 0}):narrow(1, 0, t)
    return F.sigmoid(self.wo(x)) * before
  elseif kind == "sum" then
    local n = (F.arange(t) + 1):to("float32"):view(1, t, 1)
    return x:cumsum(1) / n
  elseif kind == "extremes" then -- the greatest and the smallest number so far, and how long ago the greatest was
    local most, at = x:cummax(1)
    return most - x:transpose(1, 2):cummin(2):transpose(1, 2) + (F.arange(t):view(1, t, 1) - at):to("float32") / t
  elseif kind == "experts" then
    return (self.moe(x))
  elseif kind == "mean" then
    return x + x:mean(1, true)
  elseif kind == "reversed" then
    return x:flip(1)
  elseif kind == "chosen" then
    return x * F.softmax(x, 1)
  elseif kind == "norm" then
    return x
  elseif recurrent[kind] then
    return recurrent[kind](self, x)
  end
  local q, k, v = in_heads(self.wq(x), heads), in_heads(self.wk(x), heads // 2), in_heads(self.wv(x), heads // 2)
  local i, j = F.arange(t):view(t, 1), F.arange(t):view(1, t)
  local y
  if scores[kind] then
    y = scores[kind](self, q, k, v, i, j)
  elseif kind == "padding" then -- some tokens are hidden by what they are
    y = F.scaled_dot_product_attention(q, k, v, {attn_mask = F.logical_and(j:le(i), x:narrow(2, 0, 1):view(s[1], 1, 1, t):gt(0))})
  elseif kind == "documents" then -- a token 3 begins a document: attention sees none of others
    local document = tokens:eq(3):to("float32"):cumsum(1)
    local same = document:unsqueeze(2):eq(document:unsqueeze(1)):unsqueeze(1)
    y = F.scaled_dot_product_attention(q, k, v, {attn_mask = F.logical_and(j:le(i), same)})
  elseif kind == "packed" then -- a token 3 ends a document
    local document, place = tokens:documents(3)
    y = F.scaled_dot_product_attention(q, k, v, {is_causal = true, documents = document}) + self.places(place):unsqueeze(1):narrow(3, 0, dim // heads)
  elseif kind == "ahead" then
    y = F.scaled_dot_product_attention(q, k, v)
  elseif kind == "caches" then
    y = self.cache(q, k, v, {window = 20})
  elseif kind == "window" then
    y = F.scaled_dot_product_attention(q, k, v, {attn_mask = F.logical_and(j:le(i), j:gt(i - 7))})
  else
    y = F.scaled_dot_product_attention(q, k, v, {is_causal = true})
  end
  return self.wo(y:transpose(1, 2):reshape(s[1], t, dim))
end


local drawn = args.draw * 2654435761 % 4294967296
local function below(n)
  drawn = (drawn * 1103515245 + 12345) % 4294967296
  return drawn // 65536 % n
end

-- Ways to combine tokens, x [b, t, dim] to the same shape: most of them look back only.
local ways = {
  function(self, x, n) return F.pad(x, {0, 0, n, 0}):narrow(1, 0, T) end,
  function(self, x, n) return F.pad(x:narrow(1, 0, T - n), {0, 0, n, 0}) - x end,
  function(self, x) return x:cumsum(1) / (F.arange(T) + 1):to("float32"):view(1, T, 1) end,
  function(self, x) return F.tanh(x:transpose(1, 2):cumsum(2):transpose(1, 2) / 8) end,
  function(self, x, n) return self.conv(F.pad(x:transpose(1, 2), {2 * n, 0})):transpose(1, 2) end,
  function(self, x, n) return self.conv(F.pad(x:transpose(1, 2), {2 * n, 3})):narrow(2, 0, T):transpose(1, 2) end,
  function(self, x, n) -- a window by a mask of numbers, and heads of one group
    local i, j = F.arange(T):view(T, 1), F.arange(T):view(1, T)
    local ahead = j - i
    local mask = F.where(F.logical_or(ahead:gt(0), ahead:le(-n - 2)), -math.huge, 0.0)
    local q, k = in_heads(self.wq(x), heads), in_heads(self.wk(x), heads // 2)
    return F.scaled_dot_product_attention(q, k, k, {attn_mask = mask}):transpose(1, 2):reshape(x:size()[1], T, dim)
  end,
  function(self, x, n) -- all keys so far, by tril
    local mask = F.ones({T, T}):tril():ne(0)
    local q, k = in_heads(self.wq(x), heads), in_heads(self.wk(x), heads // 2)
    return F.scaled_dot_product_attention(q, k, k, {attn_mask = mask}):transpose(1, 2):reshape(x:size()[1], T, dim)
  end,
  function(self, x) -- tokens merged with heads, and back
    return F.softmax(x:view(x:size()[1] * T, 4, dim // 4), -1):view(x:size()[1], T, dim)
  end,
  function(self, x) return x * self.table:narrow(0, 3, T) end,
  function(self, x) return (self.moe(x)) end,
  -- From here on they look ahead.
  function(self, x, n) return F.pad(x:narrow(1, n, T - n), {0, 0, 0, n}) end,
  function(self, x, n) return self.conv(F.pad(x:transpose(1, 2), {n, n})):transpose(1, 2) end,
  function(self, x, n) -- a mask that lets some queries see one token ahead
    local i, j = F.arange(T):view(T, 1), F.arange(T):view(1, T)
    local mask = F.logical_or(j:le(i), F.logical_and(j:eq(i + 1), i:eq(T // n)))
    local q, k = in_heads(self.wq(x), heads), in_heads(self.wk(x), heads // 2)
    return F.scaled_dot_product_attention(q, k, k, {attn_mask = mask}):transpose(1, 2):reshape(x:size()[1], T, dim)
  end,
  function(self, x) return x - x:amax(1, true) end,
  function(self, x) return x:cumsum(1):flip(1) end,
}

local Drawn = nn.module("Drawn", function(self)
  local way, n, nested = ways[below(8) == 0 and 12 + below(5) or 1 + below(11)], 1 + below(4), ways[1 + below(11)]
  self.wq, self.wk = nn.Linear(dim, dim), nn.Linear(dim, dim // 2)
  self.conv = nn.Conv1d(dim, dim, 3, {groups = dim, dilation = n, bias = below(2) == 0})
  self.table = nn.Parameter{T + 5, dim, init = nn.init.normal(0, 1)}
  self.moe = nn.MoE(dim, {experts = 4, top_k = 2, hidden = dim})
  self.norm = below(2) == 0 and nn.LayerNorm(dim) or nn.RMSNorm(dim)
  local twice = below(3) == 0
  function self:forward(x, _)
    local y = way({wq = self.wq, wk = self.wk, conv = self.conv, table = self.table, moe = self.moe}, self.norm(x), n)
    if twice then y = nested({wq = self.wq, wk = self.wk, conv = self.conv, table = self.table, moe = self.moe}, y, n) end
    return x + F.silu(y)
  end
end)

local Block = nn.module("Block", function(self, kind)
  self.norm = kind == "norm" and nn.BatchNorm1d(dim, {affine = true}) or nn.LayerNorm(dim)
  self.wq, self.wk, self.wv = nn.Linear(dim, dim), nn.Linear(dim, dim // 2), nn.Linear(dim, dim // 2)
  self.wo = nn.Linear(dim, dim)
  if kind == "convolution" or kind == "late" then
    self.conv = nn.Conv1d(dim, dim, 4, {groups = dim, padding = kind == "late" and 2 or 3})
  end
  if kind == "lstm" then self.rnn = nn.LSTM(dim, dim, 2, true, true) end
  if kind == "gru" or kind == "last_state" then self.rnn = nn.GRU(dim, dim, 1, true, true) end
  if kind == "mamba2" then
    self.into = nn.Linear(dim, 2 * dim + 2 * N + H, {bias = false})
    self.conv = nn.Conv1d(dim, dim, 4, {groups = dim, padding = 3})
    for _, name in ipairs{"dt_bias", "a_log", "skip"} do self[name] = nn.Parameter{H, init = nn.init.normal(0, 1)} end
  end
  if kind == "packed" then self.places = nn.Embedding(T, dim) end
  if kind == "caches" then self.cache = nn.KVCache() end
  if kind == "relative" then self.distances = nn.Parameter{dim // heads, 9, init = nn.init.normal(0, 1)} end
  if kind == "sinks" then self.sinks = nn.Parameter{heads, init = nn.init.normal(0, 1)} end
  if kind == "rwkv" or kind == "delta" or kind == "linear" then self.wv2 = nn.Linear(dim, dim) end
  if kind == "rwkv" then
    self.mix, self.bonus = nn.Parameter{dim, init = nn.init.normal(0, 1)}, nn.Parameter{dim, init = nn.init.normal(0, 1)}
  end
  if kind == "delta" then
    self.gates, self.first = nn.Linear(dim, 2 * H), nn.Parameter{1, H, E, E, init = nn.init.normal(0, 1)}
  end
  if kind == "linear" then self.gates = nn.Linear(dim, dim) end
  self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
  if kind == "experts" then self.moe = nn.MoE(dim, {experts = 4, top_k = 2, hidden = dim}) end
  function self:forward(x, tokens)
    local h = kind == "norm" and self.norm(x:transpose(1, 2)):transpose(1, 2) or self.norm(x)
    x = x + mixed(self, kind, h, tokens)
    return x + self.down(F.gelu(self.up(x)))
  end
end)
local Model = nn.module("Model", function(self)
  local kinds = args.kind == "mixed" and {"convolution", "attention", "shift", "window", "sum"}
    or args.kind == "experts" and {"experts", "attention", "experts"}
    or args.kind == "positions" and {"attention", "attention"} or args.kind == "caches" and {"caches", "caches"} or {args.kind, "attention"}
  self.words = nn.Embedding(vocab, dim)
  if args.kind == "positions" or args.kind == "mixed" then self.places = nn.Embedding(T, dim) end
  local layers = {}
  for i, kind in ipairs(kinds) do layers[i] = Block(kind) end
  if args.kind == "random" then
    layers = {}
    for i = 1, 2 + below(3) do layers[i] = Drawn() end
  end
  self.layers = nn.ModuleList(layers)
  self.norm, self.output = nn.LayerNorm(dim), nn.Linear(dim, vocab)
  function self:forward(tokens, _, last) -- of a model with caches: of the last token only
    local x = self.words(tokens)
    if self.places then x = x + self.places(F.arange(T)) end
    for _, layer in ipairs(self.layers) do x = layer(x, tokens) end
    if last then x = x:index_select(1, last) end
    return self.output(self.norm(x))
  end
end)

local model = Model()
if args.tp > 1 then -- a GRU's hidden units by hand: auto() cuts its gates where nothing may be cut
  local styles = {
    gru = {["layers.0.rnn"] = Colwise(), output = Colwise()},
    linear = {["layers.0.gates"] = Colwise(), ["layers.0.wv2"] = Colwise(), output = Colwise(), -- each step makes a pending sum
      ["layers.0.wq"] = PrepareModuleInput{desired_input_layouts = Shard(1)}},
  }
  parallelize(model, mesh.tp, styles[args.kind] or auto())
end
if args.whole then
  return infer{model = model, batch = {tokens = randint(vocab){args.texts, T}},
    outputs = function(m, b) return {logits = m(b.tokens)} end}
end
return generate{model = model, vocab = vocab, context = T, slots = args.slots, prefill = args.prefill,
  cache_dtype = args.cache_dtype, caches = args.keep, context_over = args.cp > 1 and mesh.cp or nil}
