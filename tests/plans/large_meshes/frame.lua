-- Stands before each plan of this folder. Its functions:
--
--   stacked(Block, n, from, to)   a model: n blocks, then a linear layer
--   attention_block{...}          a block of attention and a feed-forward network, on tensors of
--                                 [batch, seq, dim]; last(x) gives its output
local function stacked(Block, n, from, to)
  local Model = nn.module("Model", function(self)
    self.layers = nn.ModuleList()
    for i = 1, n do self.layers[i] = Block() end
    self.out = nn.Linear(from, to)
    function self:forward(x)
      for _, l in ipairs(self.layers) do x = l(x) end
      return self.out(x)
    end
  end)
  return Model()
end

local function attention_block(is)
  local dim, head_dim = is.dim, is.dim // is.heads
  return nn.module("Block", function(self)
    self.norm = nn.LayerNorm(dim)
    self.wq, self.wk, self.wv, self.wo = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
    self.up, self.down = nn.Linear(dim, is.hidden), nn.Linear(is.hidden, dim)
    function self:forward(x)
      local h = self.norm(x)
      local q = self.wq(h):view(is.batch, is.seq, is.heads, head_dim):transpose(1, 2)
      local k = self.wk(h):view(is.batch, is.seq, is.heads, head_dim):transpose(1, 2)
      local v = self.wv(h):view(is.batch, is.seq, is.heads, head_dim):transpose(1, 2)
      h = F.scaled_dot_product_attention(q, k, v):transpose(1, 2):reshape(is.batch, is.seq, dim)
      x = x + self.wo(h)
      x = x + self.down(F.gelu(self.up(self.norm(x))))
      return is.last(x)
    end
  end)
end
