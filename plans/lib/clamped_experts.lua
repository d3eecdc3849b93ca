-- gpt-oss's experts: a router whose weights are a softmax over the chosen experts, biases everywhere, and gates that are
-- clamped. Weights are [experts, inputs, outputs]; of gate_up_proj gate and up stand in turn.

local M = {}

-- c: of lib/families.lua.
function M.class(c)
  local e, init = c.experts, nn.init.normal(0, 0.02)
  local count, hidden, top_k = e.count, e.hidden, e.top_k

  local Router = nn.module("Router", function(self)
    self.weight, self.bias = nn.Parameter{count, c.dim, init = init}, nn.Parameter(zeros{count})
    -- In float32, whatever the operands are.
    local function wide(t) return t:to("float32") end
    function self:forward(x)
      local best, ids = F.topk(F.linear(wide(x), wide(self.weight), wide(self.bias)), top_k, -1)
      return F.softmax(best, -1), ids
    end
  end)

  local Experts = nn.module("Experts", function(self)
    self.gate_up_proj, self.gate_up_proj_bias = nn.Parameter{count, c.dim, 2 * hidden, init = init}, nn.Parameter(zeros{count, 2 * hidden})
    self.down_proj, self.down_proj_bias = nn.Parameter{count, hidden, c.dim, init = init}, nn.Parameter(zeros{count, c.dim})
    function self:forward(x, weights, ids)
      local counts = F.count_places(ids, {sizes = {e = count}, scalar = 0})
      local shape = {x:size(0), x:size(1), top_k}
      local rows = F.dispatch(x, ids, F.full(shape, 1.0), counts)
      -- A row of one 1 for each row: times a bias it is the bias.
      local ones = F.dispatch(F.full({x:size(0), x:size(1), 1}, 1.0, {dtype = x.dtype}), ids, F.full(shape, 1.0), counts)
      local function product(y, weight, bias)
        return F.grouped_linear(y, weight:transpose(1, 2), counts) + F.grouped_linear(ones, bias:unsqueeze(-1), counts)
      end
      local function half(n)
        return product(rows, self.gate_up_proj:unflatten(-1, -1, 2):select(-1, n), self.gate_up_proj_bias:unflatten(-1, -1, 2):select(-1, n))
      end
      local gate, up = F.clamp(half(0), nil, e.limit), F.clamp(half(1), -e.limit, e.limit)
      local y = (up + 1) * (gate * F.sigmoid(gate * e.alpha))
      return F.combine(product(y, self.down_proj, self.down_proj_bias), ids, weights, counts):to(x.dtype)
    end
  end)

  return nn.module("MLP", function(self)
    self.router, self.experts = Router(), Experts()
    function self:forward(x)
      local weights, ids = self.router(x)
      return self.experts(x, weights, ids)
    end
  end)
end

-- The style along tp: each rank has a part of each expert.
function M.style()
  return ModuleLayouts{parameters = {gate_up_proj = Shard(2), gate_up_proj_bias = Shard(1), down_proj = Shard(1)}}
end

return M
