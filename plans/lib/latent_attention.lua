-- DeepSeek's attention: queries, and keys with their values, are made of short latent vectors. A part of each key
-- is rotated; it is the same for all heads.

local attention = require "lib.attention"

local M = {}

-- Of the norms of latent vectors, whatever rms_norm_eps says: as in transformers.
local EPS = 1e-6

-- The factor of the scores: YaRN's grows with the length.
local function scale_of(size, scaling)
  local scale, all = size ^ -0.5, scaling and scaling.mscale_all_dim or 0
  if all == 0 or scaling.factor <= 1 then return scale end
  return scale * (0.1 * all * math.log(scaling.factor) + 1) ^ 2
end

-- c: dim, n_heads, scaling, latent = {queries = or nil: none, keys =, nope =, rope =, value =: the sizes of the
-- latent vectors, of a head's part that is not rotated, of the part that is, of its value; pairs =: rotated are
-- neighbours; bias =: of the latent vectors and of the output}; linear(inputs, outputs, bias): makes a projection.
function M.class(c, linear)
  local l, size = c.latent, c.latent.nope + c.latent.rope
  local how = {is_causal = true, scale = scale_of(size, c.scaling)}

  return nn.module("LatentAttention", function(self)
    if l.queries then
      self.q_a_proj, self.q_a_layernorm = linear(c.dim, l.queries, l.bias), nn.RMSNorm(l.queries, {eps = EPS})
      self.q_b_proj = linear(l.queries, c.n_heads * size)
    else
      self.q_proj = linear(c.dim, c.n_heads * size)
    end
    self.kv_a_proj_with_mqa, self.kv_a_layernorm = linear(c.dim, l.keys + l.rope, l.bias), nn.RMSNorm(l.keys, {eps = EPS})
    self.kv_b_proj = linear(l.keys, c.n_heads * (l.nope + l.value))
    self.o_proj = linear(c.n_heads * l.value, c.dim, l.bias)

    local function rotated(x, cos, sin) return x:rotary(cos, sin, {pairs = l.pairs}) end
    function self:forward(x, cos, sin, documents)
      how.documents = documents
      local q = l.queries and self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))) or self.q_proj(x)
      q = attention.split(q, size)
      local latent = self.kv_a_proj_with_mqa(x)
      local kv = attention.split(self.kv_b_proj(self.kv_a_layernorm(latent:narrow(-1, 0, l.keys))), l.nope + l.value)
      local k = rotated(latent:narrow(-1, l.keys, l.rope):unsqueeze(1), cos, sin):expand(-1, c.n_heads, -1, -1)
      q = F.cat({q:narrow(-1, 0, l.nope), rotated(q:narrow(-1, l.nope, l.rope), cos, sin)}, -1)
      k = F.cat({kv:narrow(-1, 0, l.nope), k}, -1)
      return self.o_proj(attention.join(F.scaled_dot_product_attention(q, k, kv:narrow(-1, l.nope, l.value), how)))
    end
  end)
end

-- The styles along tp: the latent vectors are whole, heads are cut as `queries` says, and the output as `output`.
function M.styles(c, queries, output)
  local styles = {kv_b_proj = Colwise{output_layouts = queries}, o_proj = Rowwise{output_layouts = output or Shard(1)}}
  styles[c.latent.queries and "q_b_proj" or "q_proj"] = Colwise{output_layouts = queries}
  return styles
end

return M
