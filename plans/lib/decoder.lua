-- Llama, Mistral, Qwen 2.5 and Qwen 3 as models that generate: one class, by what config.json says.

local families, training, attention = require "lib.families", require "lib.training", require "lib.attention"

local M = {}

-- What config.json says.
function M.read(path)
  return families.complete(families.read(path, {"llama", "mistral", "ministral", "qwen2", "qwen3"},
    {{"hidden_act", "silu"}}))
end

-- The model; p: of lib.parallel. Gives the model with its styles, and the names of files.
function M.open(c, p)
  local few = c.n_heads % p.tp == 0 and p.tp % c.n_kv_heads == 0 and c.n_kv_heads < p.tp
  local bias = c.bias or {}
  local keys, times = few and Replicate() or Shard(-1), few and p.tp // c.n_kv_heads or 1

  local function linear(inputs, outputs, bias)
    return nn.Linear(inputs, outputs, {bias = bias or false, init = nn.init.normal(0, 0.02)})
  end

  local Attention = nn.module("Attention", function(self, window)
    self.q_proj = linear(c.dim, c.n_heads * c.head_dim, bias.qkv)
    self.k_proj = linear(c.dim, c.n_kv_heads * c.head_dim, bias.qkv)
    self.v_proj = linear(c.dim, c.n_kv_heads * c.head_dim, bias.qkv)
    self.o_proj = linear(c.n_heads * c.head_dim, c.dim, bias.out)
    if c.query_norms then
      self.q_norm, self.k_norm = nn.RMSNorm(c.head_dim, {eps = c.eps}), nn.RMSNorm(c.head_dim, {eps = c.eps})
    end
    self.cache = nn.KVCache()
    function self:forward(x, cos, sin)
      local function heads(y, norm)
        y = attention.split(y, c.head_dim)
        return norm and norm(y) or y
      end
      local q = heads(self.q_proj(x), self.q_norm):rotary(cos, sin)
      local k = attention.repeated(heads(self.k_proj(x), self.k_norm):rotary(cos, sin), times)
      local v = attention.repeated(heads(self.v_proj(x)), times)
      return self.o_proj(attention.join(self.cache(q, k, v, {window = window})))
    end
  end)

  local MLP = nn.module("MLP", function(self)
    self.gate_proj, self.up_proj = linear(c.dim, c.hidden, bias.mlp), linear(c.dim, c.hidden, bias.mlp)
    self.down_proj = linear(c.hidden, c.dim, bias.mlp)
    function self:forward(x) return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x)) end
  end)

  local Layer = nn.module("Layer", function(self, window)
    self.input_layernorm = nn.RMSNorm(c.dim, {eps = c.eps})
    self.post_attention_layernorm = nn.RMSNorm(c.dim, {eps = c.eps})
    self.self_attn, self.mlp = Attention(window), MLP()
    function self:forward(x, cos, sin)
      x = x + self.self_attn(self.input_layernorm(x), cos, sin)
      return x + self.mlp(self.post_attention_layernorm(x))
    end
  end)

  local Decoder = nn.module("Decoder", function(self)
    self.embed_tokens = nn.Embedding(c.vocab, c.dim, {init = nn.init.normal(0, 0.02)})
    local layers = {}
    for i = 1, c.n_layers do layers[i] = Layer(c.window and c.window(i - 1)) end
    self.layers = nn.ModuleList(layers)
    self.norm = nn.RMSNorm(c.dim, {eps = c.eps})
    self.lm_head = c.tied and attention.Tied() or linear(c.dim, c.vocab)
    function self:forward(ids, positions, last)
      local cos, sin = F.rotary_tables(positions, c.head_dim, c.rotary.theta, c.rotary.scaling)
      cos, sin = cos:unsqueeze(1), sin:unsqueeze(1)
      local x = self.embed_tokens(ids)
      for _, layer in ipairs(self.layers) do x = layer(x, cos, sin) end
      if last then x = x:index_select(1, last) end
      x = self.norm(x)
      if c.tied then return self.lm_head(x, self.embed_tokens.weight) end
      return self.lm_head(x)
    end
  end)

  local model = parallelize(Decoder(), p.mesh.tp, {
    embed_tokens = Rowwise(),
    lm_head = attention.output(c.tied),
    ["layers.*"] = {
      ["self_attn.q_proj"] = Colwise(), ["self_attn.[kv]_proj"] = Colwise{output_layouts = keys},
      ["self_attn.cache"] = attention.cut_heads(), ["self_attn.o_proj"] = Rowwise(),
      ["mlp.gate_proj"] = Colwise(), ["mlp.up_proj"] = Colwise(), ["mlp.down_proj"] = Rowwise(),
    },
  })
  return model, training.prefixed("model.", {"embed_tokens.weight", "layers.*.**", "norm.weight"})
end

return M
