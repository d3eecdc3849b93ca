-- Recurrent models of transformers, with its names: Mamba 2, RWKV 4, Qwen3-Next with a linear and a full attention. The sizes are
-- those of tests/golden/causal/make.py.
local args = settings{
  {"model", "mamba2", "the architecture", choices = {"mamba2", "rwkv", "qwen3_next"}}, {"tp", 1, "ranks"},
  {"slots", 1, "of the caches"}, {"prefill", 8, "tokens of a call"}, {"context", 64, "tokens of a text"},
}
local vocab, dim, hidden, eps, T = 96, 32, 48, 1e-5, args.context

local function numbers(...)
  local sizes = {...}
  sizes.init = nn.init.normal(0, 1)
  return nn.Parameter(sizes)
end

-- x / its root mean square, times the weight; of groups of its elements.
local RMSNorm = nn.module("RMSNorm", function(self, size, groups, least, shift)
  self.weight = numbers(size)
  function self:forward(x)
    local g = x:unflatten(-1, {groups, size // groups})
    g = g * ((g * g):mean(-1, true) + least):rsqrt()
    return g:flatten(-2) * (self.weight + shift)
  end
end)

local Mamba2 = nn.module("Mamba2", function(self)
  local heads, size, groups, states = 8, 8, 2, 4
  local inner, wide = heads * size, heads * size + 2 * groups * states
  self.in_proj = nn.Linear(dim, inner + wide + heads, {bias = false})
  self.conv1d = nn.Conv1d(wide, wide, 4, {groups = wide, padding = 3})
  self.dt_bias, self.A_log, self.D = numbers(heads), numbers(heads), numbers(heads)
  self.norm = RMSNorm(inner, groups, eps, 0)
  self.out_proj = nn.Linear(inner, dim, {bias = false})
  function self:forward(x)
    local b = x:size()[1]
    local gate, u, dt = self.in_proj(x):split({inner, wide, heads}, -1)
    u = F.silu(self.conv1d(u:transpose(1, 2)):narrow(2, 0, T):transpose(1, 2))
    local v, B, C = u:split({inner, groups * states, groups * states}, -1)
    v = v:view(b, T, heads, size)
    dt = F.softplus(dt + self.dt_bias)
    local function by_head(t) return t:view(b, T, groups, states):repeat_interleave(heads // groups, 2) end
    local _, y = F.scan(function(h, s)
      h = h * s.a:unsqueeze(-1):unsqueeze(-1) + s.v:unsqueeze(-1) * s.B:unsqueeze(-2)
      return h, (h * s.C:unsqueeze(-2)):sum(-1)
    end, F.zeros{b, heads, size, states},
      {a = (dt * -self.A_log:exp()):exp(), v = dt:unsqueeze(-1) * v, B = by_head(B), C = by_head(C)}, 1)
    y = (y + self.D:unsqueeze(-1) * v):reshape(b, T, inner)
    return self.out_proj(self.norm(y * F.silu(gate)))
  end
end)

local function shifted(x) return F.pad(x, {0, 0, 1, 0}):narrow(1, 0, T) end
local function mixed(x, before, share) return x * share + before * (1 - share) end

local TimeMix = nn.module("TimeMix", function(self)
  self.time_decay, self.time_first = numbers(dim), numbers(dim)
  for _, name in ipairs{"key", "value", "receptance"} do
    self["time_mix_" .. name] = numbers(1, 1, dim)
    self[name] = nn.Linear(dim, dim, {bias = false})
  end
  self.output = nn.Linear(dim, dim, {bias = false})
  function self:forward(x)
    local before, b = shifted(x), x:size()[1]
    local k, v = self.key(mixed(x, before, self.time_mix_key)), self.value(mixed(x, before, self.time_mix_value))
    local r = F.sigmoid(self.receptance(mixed(x, before, self.time_mix_receptance)))
    local decay, first = -self.time_decay:exp(), self.time_first
    local _, y = F.scan(function(carry, s)
      local function sums(now, before)
        local most = F.maximum(before, now)
        local old, new = (before - most):exp(), (now - most):exp()
        return old * carry.num + new * s.v, old * carry.den + new, most
      end
      local n, d = sums(s.k + first, carry.most)
      local num, den, most = sums(s.k, carry.most + decay)
      return {num = num, den = den, most = most}, n / d
    end, {num = F.zeros{b, dim}, den = F.zeros{b, dim}, most = F.full({b, dim}, -1e38)}, {k = k, v = v}, 1)
    return self.output(r * y)
  end
end)
local ChannelMix = nn.module("ChannelMix", function(self)
  self.time_mix_key, self.time_mix_receptance = numbers(1, 1, dim), numbers(1, 1, dim)
  self.key, self.value = nn.Linear(dim, hidden, {bias = false}), nn.Linear(hidden, dim, {bias = false})
  self.receptance = nn.Linear(dim, dim, {bias = false})
  function self:forward(x)
    local before = shifted(x)
    local k = F.relu(self.key(mixed(x, before, self.time_mix_key)))
    return F.sigmoid(self.receptance(mixed(x, before, self.time_mix_receptance))) * self.value(k * k)
  end
end)

local DeltaNet = nn.module("DeltaNet", function(self)
  local nk, nv, size = 2, 4, 8 -- heads of keys, of values
  local r, keys, values = nv // nk, nk * size, nv * size
  local wide = 2 * keys + values
  self.conv1d = nn.Conv1d(wide, wide, 4, {groups = wide, padding = 3, bias = false})
  self.in_proj_qkvz, self.in_proj_ba = nn.Linear(dim, wide + values, {bias = false}), nn.Linear(dim, 2 * nv, {bias = false})
  self.dt_bias, self.A_log = numbers(nv), numbers(nv)
  self.norm, self.out_proj = RMSNorm(size, 1, 1e-6, 0), nn.Linear(values, dim, {bias = false})
  function self:forward(x)
    local n = x:size()[1]
    local q, k, v, z = self.in_proj_qkvz(x):view(n, T, nk, 2 * size + 2 * size * r):split({size, size, size * r, size * r}, -1)
    local b, a = self.in_proj_ba(x):view(n, T, nk, 2 * r):split({r, r}, -1)
    z = z:reshape(n, T, nv, size)
    local u = F.cat({q:reshape(n, T, keys), k:reshape(n, T, keys), v:reshape(n, T, values)}, -1)
    u = F.silu(self.conv1d(u:transpose(1, 2)):narrow(2, 0, T):transpose(1, 2))
    q, k, v = u:split({keys, keys, values}, -1)
    local function unit(t)
      t = t:view(n, T, nk, size)
      return (t * ((t * t):sum(-1, true) + 1e-6):rsqrt()):repeat_interleave(r, 2)
    end
    local g = (F.softplus(a:reshape(n, T, nv) + self.dt_bias) * -self.A_log:exp()):exp()
    local _, y = F.scan(function(h, s) -- [n, heads, key, value]
      h = h * s.g:unsqueeze(-1):unsqueeze(-1)
      local seen = (h * s.k:unsqueeze(-1)):sum(-2)
      h = h + s.k:unsqueeze(-1) * ((s.v - seen) * s.beta:unsqueeze(-1)):unsqueeze(-2)
      return h, (h * s.q:unsqueeze(-1)):sum(-2)
    end, F.zeros{n, nv, size, size}, {q = unit(q) / math.sqrt(size), k = unit(k), v = v:view(n, T, nv, size), g = g,
      beta = F.sigmoid(b:reshape(n, T, nv))}, 1)
    return self.out_proj((self.norm(y) * F.silu(z)):reshape(n, T, values))
  end
end)
local GatedAttention = nn.module("GatedAttention", function(self)
  local heads, groups, size, turned = 4, 2, 8, 2
  self.q_proj, self.o_proj = nn.Linear(dim, 2 * heads * size, {bias = false}), nn.Linear(heads * size, dim, {bias = false})
  self.k_proj, self.v_proj = nn.Linear(dim, groups * size, {bias = false}), nn.Linear(dim, groups * size, {bias = false})
  self.q_norm, self.k_norm = RMSNorm(size, 1, 1e-6, 1), RMSNorm(size, 1, 1e-6, 1)
  function self:forward(x)
    local n = x:size()[1]
    local q, gate = self.q_proj(x):view(n, T, heads, 2 * size):chunk(2, -1)
    local cos, sin = F.rotary_tables(T, turned)
    local function rotated(t)
      local first, rest = t:transpose(1, 2):split({turned, size - turned}, -1)
      return F.cat({first:rotary(cos, sin), rest}, -1)
    end
    q = rotated(self.q_norm(q))
    local k = rotated(self.k_norm(self.k_proj(x):view(n, T, groups, size)))
    local v = self.v_proj(x):view(n, T, groups, size):transpose(1, 2)
    local y = F.scaled_dot_product_attention(q, k, v, {is_causal = true}):transpose(1, 2):reshape(n, T, heads * size)
    return self.o_proj(y * F.sigmoid(gate:reshape(n, T, heads * size)))
  end
end)
local MLP = nn.module("MLP", function(self)
  self.gate_proj, self.up_proj = nn.Linear(dim, hidden, {bias = false}), nn.Linear(dim, hidden, {bias = false})
  self.down_proj = nn.Linear(hidden, dim, {bias = false})
  function self:forward(x) return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x)) end
end)

-- By architecture: a layer, and the model: module names are those of the files.
local Layer = {
  mamba2 = nn.module("Mamba2Block", function(self, _)
    self.norm, self.mixer = RMSNorm(dim, 1, eps, 0), Mamba2()
    function self:forward(x) return x + self.mixer(self.norm(x)) end
  end),
  rwkv = nn.module("RwkvBlock", function(self, i)
    if i == 1 then self.pre_ln = nn.LayerNorm(dim) end
    self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
    self.attention, self.feed_forward = TimeMix(), ChannelMix()
    function self:forward(x)
      if self.pre_ln then x = self.pre_ln(x) end
      x = x + self.attention(self.ln1(x))
      return x + self.feed_forward(self.ln2(x))
    end
  end),
  qwen3_next = nn.module("Qwen3NextLayer", function(self, i)
    if i == 1 then self.linear_attn = DeltaNet() else self.self_attn = GatedAttention() end
    self.input_layernorm, self.post_attention_layernorm = RMSNorm(dim, 1, 1e-6, 1), RMSNorm(dim, 1, 1e-6, 1)
    self.mlp = MLP()
    function self:forward(x)
      x = x + (self.linear_attn or self.self_attn)(self.input_layernorm(x))
      return x + self.mlp(self.post_attention_layernorm(x))
    end
  end),
}
local NAMES = { -- of the inner model, its embedding, layers, last norm; of the output
  mamba2 = {"backbone", "embeddings", "layers", "norm_f", "lm_head"},
  rwkv = {"rwkv", "embeddings", "blocks", "ln_out", "head"},
  qwen3_next = {"model", "embed_tokens", "layers", "norm", "lm_head"},
}
local name = NAMES[args.model]
local Inner = nn.module("Inner", function(self)
  self[name[2]] = nn.Embedding(vocab, dim)
  self[name[3]] = nn.ModuleList{Layer[args.model](1), Layer[args.model](2)}
  self[name[4]] = args.model == "rwkv" and nn.LayerNorm(dim)
    or RMSNorm(dim, 1, args.model == "mamba2" and eps or 1e-6, args.model == "mamba2" and 0 or 1)
  function self:forward(tokens)
    local x = self[name[2]](tokens)
    for _, layer in ipairs(self[name[3]]) do x = layer(x) end
    return self[name[4]](x)
  end
end)
local Model = nn.module("Model", function(self)
  self[name[1]], self[name[5]] = Inner(), nn.Linear(dim, vocab, {bias = false})
  function self:forward(tokens) return self[name[5]](self[name[1]](tokens)) end
end)
local model = Model()
if args.tp > 1 then parallelize(model, device_mesh{tp = args.tp}.tp, auto()) end
return generate{model = model, vocab = vocab, context = T, slots = args.slots, prefill = args.prefill}
