-- A padding mask of an input that is not cut as the tokens are, whose order is dealt out.
local mesh = device_mesh{ {"cp", 2} }
local Attention = nn.module("Attention", function(self)
  function self:forward(batch)
    local x, seen = batch.input:unsqueeze(1), batch.padding:gt(0):view(1, 1, 1, 8)
    return F.scaled_dot_product_attention(x, x, x, {attn_mask = seen})
  end
end)
return infer{
  model = context_parallel(Attention(), mesh.cp, {balance = "headtail"}),
  batch = {padding = randint(0, 9){1, 8}, input = distribute(randn{1, 8, 4}, mesh.cp, Shard(1))},
  outputs = function(model, batch) return {y = model(batch)} end,
}
