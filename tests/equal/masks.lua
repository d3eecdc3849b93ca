-- What is true and what is not: comparisons, masks of attention, whole numbers and truths as inputs
-- and as outputs.
-- mesh: dp=2
-- mesh: dp=3
-- mesh: tp=2
-- cuda: tp=2
-- mesh: dp=2 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Model = nn.module("Model", function(self)
  self.q, self.kv = nn.Linear(8, 8), nn.Linear(8, 8, {bias = false})
  local function heads(x, n) return x:unflatten(-1, n, 2):transpose(1, 2) end
  function self:forward(b)
    local q = heads(self.q(b.x), 4)
    local k, v = self.kv(b.x):chunk(2, -1)
    k, v = heads(k, 2), heads(v, 2)
    local seen = b.seen:view(6, 1, 1, 5):logical_or(F.arange(5):view(5, 1):ge(F.arange(5)))
    local far = (F.arange(5):unsqueeze(1) - F.arange(5)):abs() * -0.5
    local y = F.scaled_dot_product_attention(q, k, v, {mask = seen})
    y = y + F.scaled_dot_product_attention(q, k, v, {mask = far, scale = 0.5})
    y = y:transpose(1, 2):flatten(2)
    return y:masked_fill(b.x:lt(-1), 0), F.where(y:gt(b.x), y, b.x:minimum(0.5))
  end
end)

local model = parallelize(Model(), mesh.tp, {q = Colwise(), kv = Colwise{output_layouts = Replicate()}})
local batch = distribute({
  x = randn{6, 5, 8}, seen = randint(2){6, 5, dtype = "bool"}, ids = randint(9){6, 5},
}, mesh.dp, Shard(0))

return infer{
  model = model, batch = batch, seed = 9,
  outputs = function(model, b)
    local filled, chosen = model(b)
    return {
      filled = filled, chosen = chosen, ids = b.ids, seen = b.seen:logical_not(),
      doubled = b.ids * 2 + 1, hot = b.ids:one_hot(9), sum = b.ids:sum(1), count = b.seen:sum(),
      longer = b.ids:to("int64"), rounded = (chosen * 3):to("int32"), best = chosen:argmax(1),
      near = filled:eq(chosen), halves = b.ids / 2,
    }
  end,
}
