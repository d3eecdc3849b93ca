-- Attention of one long sequence, forward and backward, cut over cp ranks. -D cp=2 -D seq=32768 -D heads=8
-- -D size=64 -D context=ring -D balance=headtail.
local cp, seq, heads, size = args.cp or 1, args.seq or 32768, args.heads or 8, args.size or 64
local mesh = device_mesh{ {"cp", cp} }

local Attention = nn.module("Attention", function(self)
  for _, name in ipairs{"q", "k", "v"} do
    self[name] = nn.Parameter(distribute(randn{1, heads, seq, size}, mesh.cp, Shard(2)))
  end
  function self:forward()
    return F.scaled_dot_product_attention(self.q, self.k, self.v, {is_causal = true})
  end
end)

return train{
  model = context_parallel(Attention(), mesh.cp, {method = args.context or "ring", balance = args.balance}),
  batch = {weight = distribute(randn{1, heads, seq, size}, mesh.cp, Shard(2)),
           input = distribute(randint(0, 2){1, seq}, mesh.cp, Shard(1))}, -- its sequence is cut
  forward = function(model, batch) return model() end,
  loss = function(y, batch) return (y * batch.weight):mean() end,
  optimizer = SGD{lr = 0},
  steps = 3,
}
