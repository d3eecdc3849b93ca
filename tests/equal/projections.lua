-- Fused projections: q, k and v, or gate and up, side by side in one weight, cut part by part: equal parts in
-- GPT-2's layout [in, out], parts of several sizes for grouped queries, without a bias, parts that the model
-- takes by views, a projection that it takes as a whole, one that two modules share, and one of which a part is for
-- nothing. In files of others some of these weights are parts of one tensor, beside weights without parts. Weights of attention are dropped, the same on every mesh. Some of the optimizers look at the whole weight.
-- mesh: tp=2
-- mesh: tp=3
-- mesh: dp=2 tp=2
-- mesh: fsdp=2 tp=2
-- mesh: fsdp=3 tp=2
-- sanitized: fsdp=2 tp=2
-- cuda: tp=2
-- cuda: fsdp=2 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"fsdp", args.fsdp or 1}, {"tp", args.tp or 1} }
local normal = nn.init.normal(0, 0.3)
local DIM, HEADS, GROUPS = 24, 4, 2
local HEAD = DIM // HEADS

local Attention = nn.module("Attention", function(self)
  self.c_attn = nn.Conv1D(3 * DIM, DIM, {init = normal})
  self.c_proj = nn.Conv1D(DIM, DIM, {init = normal})
  function self:forward(x)
    local b, t = x.shape[1], x.shape[2]
    local q, k, v = self.c_attn(x):split(DIM, 2)
    local function heads(y) return y:view(b, t, HEADS, HEAD):transpose(1, 2) end
    local y = F.scaled_dot_product_attention(heads(q), heads(k), heads(v), {is_causal = true, dropout_p = 0.2})
    return self.c_proj(y:transpose(1, 2):reshape(b, t, DIM))
  end
end)

local Grouped = nn.module("Grouped", function(self)
  self.qkv_proj = nn.Linear(DIM, (HEADS + 2 * GROUPS) * HEAD, {bias = false, init = normal})
  self.o_proj = nn.Linear(DIM, DIM, {bias = false, init = normal})
  function self:forward(x)
    local b, t = x.shape[1], x.shape[2]
    local heads = self.qkv_proj(x):view(b, t, HEADS + 2 * GROUPS, HEAD):transpose(1, 2)
    local q, k, v = heads:split({HEADS, GROUPS, GROUPS}, 1)
    local y = F.scaled_dot_product_attention(q, k, v, {is_causal = true, enable_gqa = true})
    return self.o_proj(y:transpose(1, 2):reshape(b, t, DIM))
  end
end)

local Mlp = nn.module("Mlp", function(self)
  self.gate_up_proj = nn.Linear(DIM, 2 * 40, {init = normal})
  self.down_proj = nn.Linear(40, DIM, {init = normal})
  function self:forward(x)
    local both = self.gate_up_proj(x):view(x.shape[1], x.shape[2], 2, 40)
    return self.down_proj(both:select(2, 0):silu() * both:select(2, 1))
  end
end)

local Block = nn.module("Block", function(self)
  self.attention, self.grouped, self.mlp = Attention(), Grouped(), Mlp()
  self.whole = nn.Linear(DIM, DIM, {init = normal})
  self.half = nn.Linear(DIM, 2 * DIM, {init = normal})
  self.norm = nn.RMSNorm(DIM)
  function self:forward(x)
    x = x + self.attention(self.norm(x))
    x = x + self.grouped(self.norm(x))
    x = x + self.mlp(self.norm(x))
    local y = self.norm(x)
    local _, half = self.half(y):chunk(2, -1)
    return x + self.whole(y):tanh() + F.linear(y, self.whole.weight) * 0.1 + half * 0.1
  end
end)

local Model = nn.module("Model", function(self)
  self.h = nn.ModuleList{Block(), Block()}
  function self:forward(x)
    for _, block in ipairs(self.h) do x = block(x) end
    return x
  end
end)

local model = parallelize(Model(), mesh.tp, {
  ["h.*.attention.c_attn"] = Colwise{parts = 3},
  ["h.*.attention.c_proj"] = Rowwise(),
  ["h.*.grouped.qkv_proj"] = Colwise{parts = {HEADS * HEAD, GROUPS * HEAD, GROUPS * HEAD}},
  ["h.*.grouped.o_proj"] = Rowwise(),
  ["h.*.mlp.gate_up_proj"] = Colwise{parts = 2},
  ["h.*.mlp.down_proj"] = Rowwise(),
  ["h.*.whole"] = Colwise{parts = {10, 14}},
  ["h.*.half"] = Colwise{parts = 2},
})
for _, block in ipairs(model.h) do fully_shard(block, mesh.fsdp) end
fully_shard(model, mesh.fsdp)

-- Its states are one number a column, and one a row; what is largest is so in all parts.
local Largest = optimizer{
  name = "Largest", defaults = {lr = 0.01},
  state = function(_, shape) return {{"columns", {1, shape[2]}}, {"rows", {shape[1], 1}}} end,
  update = function(p, g, state, o)
    local columns = (0.5 * state.columns):maximum(g:abs():amax(0, true))
    local rows = state.rows:lerp(g:amin(1):abs():mean() + (g * g):mean(1, true), 0.1)
    return p - o.lr * g / (columns + rows + 1e-2), {columns = columns, rows = rows}
  end,
}

return train{
  model = model,
  batch = distribute({input = randn{4, 5, DIM}, target = randn{4, 5, DIM}}, mesh{"dp", "fsdp"},
    {Shard(0), Shard(0)}),
  loss = function(output, batch) return (output - batch.target):square():mean() end,
  optimizer = AdamW{lr = 0.01},
  groups = {
    {match = "h.*.attention.c_attn.weight", optimizer = Adafactor{lr = 0.01}},
    {match = "h.*.attention.c_attn.bias", optimizer = SGD{lr = 0.1}}, -- the keys' gradient is rounding alone
    {match = "h.*.grouped.qkv_proj.weight|h.*.half.*", optimizer = LAMB{lr = 0.01, eps = 1e-3}},
    {match = "h.*.whole.weight", optimizer = Largest{}},
  },
  clip = 1.0,
  steps = 5,
  names = {
    ["h.*.mlp.gate_up_proj.weight"] = {tensor = "blocks.*.wide", dim = 0, part = 2, of = 2},
    ["h.*.half.weight"] = {tensor = "blocks.*.wide", dim = 0, part = 1, of = 2},
    ["h.*.whole.weight"] = {tensor = "blocks.*.square", dim = 1, part = 3, of = 3},
    ["h.*.grouped.o_proj.weight"] = {tensor = "blocks.*.square", dim = 1, part = 1, of = 3},
    ["h.*.attention.c_proj.weight"] = {tensor = "blocks.*.square", dim = 1, part = 2, of = 3},
    ["h.*.attention.c_attn.*"] = "blocks.*.c_attn.*",
  },
}
