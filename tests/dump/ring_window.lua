-- Attention around a ring of five ranks, each with four tokens. A query sees the keys less than four places away, on both sides: of
-- the blocks of other ranks it needs those of its two neighbours alone.
local mesh = device_mesh{ {"cp", 5} }
local Attention = nn.module("Attention", function(self)
  function self:forward(x) return F.scaled_dot_product_attention(x, x, x, {window = 4, scale = 1}) end
end)
return infer{
  model = context_parallel(Attention(), mesh.cp),
  batch = {input = distribute(randn{1, 1, 20, 4}, mesh.cp, Shard(2))},
}
