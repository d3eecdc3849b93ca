-- Adapters of an Embedding, of Conv1D modules (one has as many inputs as outputs), and of projections that are
-- cut part by part: q, k and v of a Conv1D, gate and up of a Linear.
local D, H, HEADS = 12, 16, 3
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local Block = nn.module("Block", function(self)
  self.norm, self.c_attn, self.c_proj = nn.LayerNorm(D), nn.Conv1D(3 * D, D), nn.Conv1D(D, D)
  self.gate_up, self.down = nn.Linear(D, 2 * H), nn.Linear(H, D)
  local function heads(x) return x:view(12, 5, HEADS, D // HEADS):transpose(1, 2) end
  function self:forward(x)
    local q, k, v = self.c_attn(self.norm(x)):split(D, 2)
    local y = F.scaled_dot_product_attention(heads(q), heads(k), heads(v), {is_causal = true})
    x = x + self.c_proj(y:transpose(1, 2):reshape(12, 5, D))
    local gate, up = self.gate_up(x):chunk(2, 2)
    return x + self.down(F.silu(gate) * up)
  end
end)
local Model = nn.module("Model", function(self)
  self.wte = nn.Embedding(30, D)
  self.h = nn.ModuleList{Block(), Block()}
  self.head = nn.Linear(D, 7, false)
  function self:forward(ids)
    local x = self.wte(ids)
    for _, block in ipairs(self.h) do x = block(x) end
    return self.head(x)
  end
end)

local model = Model()
local function adapt()
  lora(model, {r = 3, lora_alpha = 6, target_modules = {"wte", "c_attn", "c_proj", "gate_up"}})
end
if args.first then adapt() end
parallelize(model, mesh.tp, {
  wte = args.rows and Rowwise() or Colwise{output_layouts = Replicate()},
  ["h.*.c_attn"] = Colwise{parts = 3}, ["h.*.c_proj"] = Rowwise(),
  ["h.*.gate_up"] = Colwise{parts = {H, H}}, ["h.*.down"] = Rowwise(),
})
if not args.first then adapt() end
for _, block in ipairs(model.h) do fully_shard(block, mesh.dp) end
fully_shard(model, mesh.dp)

return train{
  model = model, names = {["**"] = "transformer.**"},
  batch = distribute({ input = randint(30){12, 5}, target = randint(-100, 7){12, 5} }, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.cross_entropy(output, batch.target) end,
  optimizer = AdamW{ lr = 1e-2 }, clip = 0.5, steps = 20, grad_norm = true,
}
