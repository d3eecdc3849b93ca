-- GPT-2 as a model that generates.

local families, training, attention = require "lib.families", require "lib.training", require "lib.attention"

local M = {}

function M.read(path)
  return families.complete(families.read(path, {"gpt2"}, {{"activation_function", "gelu_new"}}))
end

function M.open(c, p)
  local hidden, size = c.hidden, c.head_dim

  local function conv1d(outputs, inputs)
    return nn.Conv1D(outputs, inputs, {init = nn.init.normal(0, 0.02)})
  end

  local Attention = nn.module("Attention", function(self)
    self.c_attn, self.c_proj, self.cache = conv1d(3 * c.dim, c.dim), conv1d(c.dim, c.dim), nn.KVCache()
    function self:forward(x)
      local q, k, v = self.c_attn(x):chunk(3, -1)
      local function heads(y) return attention.split(y, size) end
      return self.c_proj(attention.join(self.cache(heads(q), heads(k), heads(v))))
    end
  end)

  local MLP = nn.module("MLP", function(self)
    self.c_fc, self.c_proj = conv1d(hidden, c.dim), conv1d(c.dim, hidden)
    function self:forward(x) return self.c_proj(F.gelu(self.c_fc(x), {approximate = "tanh"})) end
  end)

  local Block = nn.module("Block", function(self)
    self.ln_1, self.ln_2 = nn.LayerNorm(c.dim, {eps = c.eps}), nn.LayerNorm(c.dim, {eps = c.eps})
    self.attn, self.mlp = Attention(), MLP()
    function self:forward(x)
      x = x + self.attn(self.ln_1(x))
      return x + self.mlp(self.ln_2(x))
    end
  end)

  local GPT2 = nn.module("GPT2", function(self)
    self.wte = nn.Embedding(c.vocab, c.dim, {init = nn.init.normal(0, 0.02)})
    self.wpe = nn.Embedding(c.positions, c.dim, {init = nn.init.normal(0, 0.02)})
    self.h = attention.layers(c.n_layers, Block)
    self.ln_f = nn.LayerNorm(c.dim, {eps = c.eps})
    self.lm_head = c.tied and attention.Tied() or nn.Linear(c.dim, c.vocab, {bias = false})
    function self:forward(ids, positions, last)
      local x = self.wte(ids) + self.wpe(positions)
      for _, block in ipairs(self.h) do x = block(x) end
      if last then x = x:index_select(1, last) end
      x = self.ln_f(x)
      if c.tied then return self.lm_head(x, self.wte.weight) end
      return self.lm_head(x)
    end
  end)

  return parallelize(GPT2(), p.mesh.tp, {
    wte = Rowwise(),
    lm_head = attention.output(c.tied),
    ["h.*"] = {
      ["attn.c_attn"] = Colwise{parts = 3}, ["attn.c_proj"] = Rowwise(),
      ["attn.cache"] = attention.cut_heads(),
      ["mlp.c_fc"] = Colwise(), ["mlp.c_proj"] = Rowwise(),
    },
  }), training.prefixed("transformer.", {"wte.weight", "wpe.weight", "ln_f.*", "h.*.**"})
end

return M
