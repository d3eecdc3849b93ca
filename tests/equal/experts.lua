-- Experts between other layers: one expert a token with a capacity, experts on ranks and in parts of each, micro-batches of
-- equal and of unlike sizes, behind an attention that ranks cut by heads or by samples.
-- mesh: tp=2 cut=1 microbatches=2
-- mesh: ep=2 microbatches=3
-- sanitized: ep=2 microbatches=3
-- cuda: ep=2 microbatches=3
-- mesh: ep=2
-- mesh: ep=3
-- mesh: tp=2 cut=1
-- mesh: tp=3 microbatches=2
-- mesh: tp=2 cut=1 microbatches=4
-- mesh: ep=2 tp=2
local mesh = device_mesh{ {"ep", args.ep or 1}, {"tp", args.tp or 1} }
local WIDTH, LENGTH, SAMPLES = 8, 12, 6

local Attention = nn.module("Attention", function(self, count)
  local width = 2 * count
  self.norm = nn.RMSNorm(WIDTH)
  self.q, self.k = nn.Linear(WIDTH, width), nn.Linear(WIDTH, width, {bias = false})
  self.v, self.o = nn.Linear(WIDTH, width), nn.Linear(width, WIDTH)
  function self:forward(x)
    local h = self.norm(x)
    local function heads(t) return t:unflatten(-1, count, 2):transpose(1, 2) end
    local y = F.scaled_dot_product_attention(heads(self.q(h)), heads(self.k(h)), heads(self.v(h)))
    return x + self.o(y:transpose(1, 2):flatten(2))
  end
end)

local Experts = nn.module("Experts", function(self, top_k, capacity)
  self.norm = nn.RMSNorm(WIDTH)
  self.moe = nn.MoE(WIDTH, {experts = 6, top_k = top_k, hidden = 6, capacity = capacity})
  function self:forward(x) return x + (self.moe(self.norm(x))) end
end)

local Net = nn.module("Net", function(self)
  self.inp, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 7)
  self.layers = nn.ModuleList{Attention(1), Experts(2), Attention(3), Experts(1, 1.25), Experts(1)}
  function self:forward(x)
    x = self.inp(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.out(x)
  end
end)

local model = Net()
local batch = {input = randn{SAMPLES, LENGTH, WIDTH}, target = randn{SAMPLES, LENGTH, 7}}
if args.ep then
  parallelize(model, mesh.ep, {["layers.*.moe.experts"] = ExpertParallel()})
  distribute(batch, mesh.ep, Shard(0))
end
if args.tp then
  parallelize(model, mesh.tp, {["layers.*.moe.experts"] = ExpertTensorParallel()})
  parallelize(model, mesh.tp, args.cut and {["layers.*.v"] = Colwise()} or
    {["layers.2"] = {q = Colwise(), k = Colwise(), v = Colwise(), o = Rowwise()}})
end
return train{
  model = model, batch = batch,
  loss = function(output, batch) return F.mse_loss(output, batch.target) end,
  optimizer = SGD{lr = 0.1, momentum = 0.9}, steps = 3, seed = 22, microbatches = args.microbatches,
}
