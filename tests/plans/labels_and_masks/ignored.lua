-- Labels of -100, which count for nothing unless the plan says otherwise, and queries whose mask lets
-- them see nothing, which get zeros: -D how=default leaves both to tpgen, how=spelled says them by
-- other operations. Classes are cut over tp, heads and labels too. -D dtype=bfloat16.
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local spelled = args.how == "spelled"
local BATCH, LENGTH, WIDTH, HEADS, CLASSES = 4, 6, 8, 2, 5
local live = {1, 2, 4} -- of the queries; the others see nothing

local function some(list)
  local x = F.full({#list}, 0)
  for i, n in ipairs(list) do x = F.where(F.arange(#list):eq(i - 1), n, x) end
  return x
end

-- A query sees the keys up to its own place, but 1; or what is added falls with the distance.
local function masks()
  local query, key = F.arange(LENGTH):unsqueeze(1), F.arange(LENGTH):unsqueeze(0)
  local sees = key:le(query):logical_and(key:ne(1):logical_or(query:eq(1)))
  local dead = query:eq(0):logical_or(query:eq(3)):logical_or(query:eq(5))
  local far = (query - key):abs() * -0.25
  return sees:logical_and(dead:logical_not()), far:masked_fill(dead, -math.huge), sees, far
end

local function attend(q, k, v)
  local bools, added, sees, far = masks()
  if not spelled then
    return F.scaled_dot_product_attention(q, k, v, {mask = bools})
      + F.scaled_dot_product_attention(q, k, v, {mask = added})
  end
  local rows = some(live)
  local function of_live(mask)
    return F.scaled_dot_product_attention(q:index_select(2, rows), k, v,
      {mask = mask:index_select(0, rows)})
  end
  local y = (of_live(sees) + of_live(far)):to("float32")
  return (q * 0):to("float32"):index_add(2, rows, y):to(q.dtype)
end

local Model = nn.module("Model", function(self)
  self.q, self.k, self.v = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
  self.up, self.output = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
  local function heads(x) return x:unflatten(-1, HEADS, WIDTH // HEADS):transpose(1, 2) end
  function self:forward(x)
    local y = attend(heads(self.q(x)), heads(self.k(x)), heads(self.v(x)))
    return self.output(self.up(y:transpose(1, 2):flatten(2)))
  end
end)

local model = parallelize(Model(), mesh.tp, {
  q = Colwise(), k = Colwise(), v = Colwise(), up = Rowwise(), output = Colwise{output_layouts = Shard(-1)},
})
if args.dtype then model = mixed_precision(model, {param_dtype = args.dtype}) end
local batch = distribute({
  input = randn{BATCH, LENGTH, WIDTH}, target = randint(CLASSES){BATCH, LENGTH},
  says = randint(2){BATCH, LENGTH, dtype = "bool"},
}, mesh.dp, Shard(0))

return train{
  model = model, batch = batch,
  loss = function(logits, batch)
    if not spelled then
      local target = F.where(batch.says, batch.target, -100)
      return F.cross_entropy(logits, target) + F.nll_loss(logits:log_softmax(-1), target)
    end
    local each = F.cross_entropy(logits, batch.target, {reduction = "none"})
    return (each * batch.says):sum() / batch.says:sum():to("float32") * 2
  end,
  optimizer = SGD{lr = 0.1}, steps = 5, seed = 3,
}
