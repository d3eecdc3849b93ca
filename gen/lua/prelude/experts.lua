-- experts.lua: a mixture of experts, over the operators for rows by expert (ops.h): a router names k
-- experts for each token, dispatch brings the tokens to their rows, combine adds the rows up. A plan
-- with another router is written like this one.
--
--   local moe = nn.MoE(dim, {experts = 8, top_k = 2, hidden = 4 * dim})
--   local y, load = moe(x)                                     -- x and y: [batch, sequence, dim]
--
--   router = "softmax"    over all experts, or "sigmoid"
--   normalize = true      a token's weights are divided by their sum
--   scale = 1             the weights' factor behind that
--   groups, top_groups    the experts lie in so many groups; a token's are in the best of these, by
--                         the sum of a group's two best
--   shared = 0            the hidden size of a network that takes every token
--
-- load: for F.load_balancing_loss. load[1] has the places of each expert, load[2] its probabilities,
-- both [experts] and means over the tokens.
local core, base, plan = ...
local fail = base.fail
local nn = plan.nn
local of = {}        -- the functions, whatever a plan does to F
for name, f in pairs(base.F) do of[name] = f end

local LARGEST = 1 << 40

-- nn.Experts(num_experts, dim, hidden): each with down(silu(gate x) * up x), of rows by expert.
nn.Experts = base.own_class("Experts", {"gate_proj", "up_proj", "down_proj"},
  function(num_experts, dim, hidden, init)
    local experts = base.integer(num_experts, "Experts' number", 1, 1 << 20)
    dim = base.integer(dim, "Experts' size of a token", 1, LARGEST)
    hidden = base.integer(hidden, "Experts' hidden size", 1, LARGEST)
    local function weight(outputs, inputs)
      local bound = 1 / math.sqrt(inputs)
      return core.parameter("Experts", {experts, outputs, inputs},
        base.beginning(init, "Experts", "uniform", -bound, bound))
    end
    return {gate_proj = weight(hidden, dim), up_proj = weight(hidden, dim),
      down_proj = weight(dim, hidden)}
  end,
  function(self, _, rows, counts)
    local function linear(x, weight) return of.grouped_linear(x, of.to(weight, "float32"), counts) end
    local h = of.silu(linear(rows, self.gate_proj)) * linear(rows, self.up_proj)
    return linear(h, self.down_proj)
  end)
base.Experts = nn.Experts

-- ---------------------------------------------------------------------------------------- routing

-- The scores of the experts outside of the best groups become 0.
local function in_best_groups(scores, groups, top)
  local by_group = of.unflatten(scores, -1, {groups, -1})
  local best = of.sum((of.topk(by_group, 2, -1)), -1)
  local _, chosen = of.topk(best, top, -1)
  local is_chosen = of.sum(of.one_hot(chosen, groups), -2)
  return of.flatten(of.where(of.gt(of.unsqueeze(is_chosen, -1), 0), by_group, 0.0), -2)
end

-- The experts of each token, [batch, sequence, k], and their weights.
local function routed(how, scores)
  local choice = scores
  if how.groups > 1 then choice = in_best_groups(choice, how.groups, how.top_groups) end
  local _, ids = of.topk(of.detach(choice), how.top_k, -1)
  local weights = of.gather(scores, -1, ids)
  if how.normalize then
    local sum = of.sum(weights, -1, true)
    if how.router == "sigmoid" then sum = sum + 1e-20 end
    weights = weights / sum
  end
  if how.scale ~= 1 then weights = weights * how.scale end
  return ids, weights
end

-- -------------------------------------------------------------------------------------- the layer

local function options_of(options)
  local o = base.options(options, "nn.MoE", {"experts", "top_k", "hidden", "router", "normalize",
    "scale", "groups", "top_groups", "shared", "init"})
  local how = {router = o.router == nil and "softmax" or o.router}
  if how.router ~= "softmax" and how.router ~= "sigmoid" then
    fail("nn.MoE's router is softmax or sigmoid, not %s", base.a(how.router))
  end
  how.experts = base.integer(o.experts, "nn.MoE's experts", 1, 1 << 20)
  how.top_k = base.integer(o.top_k, "nn.MoE's top_k", 1, how.experts)
  how.hidden = base.integer(o.hidden, "nn.MoE's hidden", 1, LARGEST)
  how.normalize = o.normalize == nil or base.boolean(o.normalize, "nn.MoE's normalize")
  how.scale = o.scale == nil and 1 or base.number(o.scale, "nn.MoE's scale", 0, math.huge)
  how.groups = base.integer(o.groups == nil and 1 or o.groups, "nn.MoE's groups", 1, how.experts)
  how.top_groups = base.integer(o.top_groups == nil and how.groups or o.top_groups,
    "nn.MoE's top_groups", 1, how.groups)
  if how.experts % how.groups ~= 0 or how.groups > 1 and how.experts // how.groups < 2 then
    fail("nn.MoE: %d experts do not lie in %d groups of two or more", how.experts, how.groups)
  end
  how.shared = base.integer(o.shared == nil and 0 or o.shared, "nn.MoE's shared", 0, LARGEST)
  how.init = o.init
  return how
end

-- A network that takes every token, beside the experts.
local SharedExperts = nn.module("SharedExperts", function(self, dim, hidden, init)
  local options = {bias = false, init = init}
  self.gate_proj, self.up_proj = nn.Linear(dim, hidden, options), nn.Linear(dim, hidden, options)
  self.down_proj = nn.Linear(hidden, dim, options)
  function self:forward(x) return self.down_proj(of.silu(self.gate_proj(x)) * self.up_proj(x)) end
end)

nn.MoE = nn.module("MoE", function(self, dim, options)
  local how = options_of(options)
  self.gate = nn.Linear(dim, how.experts, {bias = false, init = how.init})
  self.experts = nn.Experts(how.experts, dim, how.hidden, how.init)
  if how.shared > 0 then self.shared_experts = SharedExperts(dim, how.shared, how.init) end

  function self:forward(x)
    local shape = core.shape(x)
    if #shape ~= 3 then
      base.misfit("nn.MoE takes [batch, sequence, dim], not the shape %s", base.shape_text(shape))
    end
    local logits = of.to(self.gate(x), "float32")
    local scores = how.router == "softmax" and of.softmax(logits, -1) or of.sigmoid(logits)
    local ids, weights = routed(how, scores)
    local counts = of.count_places(ids, {sizes = {e = how.experts}})
    local ones = of.full({shape[1], shape[2], how.top_k}, 1.0)
    local rows = of.dispatch(x, ids, ones, counts)
    local y = of.to(of.combine(self.experts(rows, counts), ids, weights, counts), core.type(x))
    if self.shared_experts then y = y + self.shared_experts(x) end
    local tokens = shape[1] * shape[2]
    return y, {of.to(counts, "float32") / tokens, of.mean(scores, {0, 1})}
  end
end)

-- load_balancing_loss(load): experts * sum(places * probabilities), which is k when all experts have
-- as many tokens. Of several layers: the means of their loads.
base.method("load_balancing_loss", function(places, probabilities)
  local experts = core.shape(base.tensor(places, "the places"))[1]
  return of.sum(of.detach(places) * probabilities) * experts
end)
