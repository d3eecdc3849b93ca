-- experts.lua: a mixture of experts, over the operators for rows by expert (ops.h): a router names k
-- experts for each token, dispatch brings the tokens to their rows, combine adds the rows up. A plan
-- with another router is written like this one.
--
--   local moe = nn.MoE(dim, {experts = 8, top_k = 2, hidden = 4 * dim})
--   local y, load = moe(x)                                     -- x and y: [batch, sequence, dim]
--
--   router = "softmax"    over all experts, or "sigmoid"
--   normalize = true      a token's weights are divided by their sum
--   scale = 1             the weights' factor after that
--   groups, top_groups    the experts are in so many groups; a token's are in the best of these, by
--                         the sum of a group's two best
--   shared = 0            the hidden size of a network that takes every token
--   shared_gate = false   its output times the sigmoid of a product of the token with a weight (Qwen2-MoE's)
--   act = F.silu          of the experts and of that network: a function of a tensor
--   bias_balance = 1e-3   experts are chosen by their scores plus a bias, a buffer. Each step it grows
--                         by this where an expert had fewer tokens than the mean, and shrinks where it
--                         had more. 0: it stays
--   capacity = 1.25       in each sequence an expert takes at most so many times the mean of places,
--                         the first ones; the others are dropped: the token gets nothing of that
--                         expert. A rank has room only for the rest. Without it no place is dropped
--   bound = 2             of experts that are cut over ranks: a rank has room for so many times the rows that its
--                         experts get in balance; more rows end the job. Without it there is room for all
--   load_batch = 4        load is of groups of so many samples, one after the other: [groups, experts].
--                         A step in micro-batches cannot read what all samples make together
--
-- load: for F.load_balancing_loss. load[1] has the places of each expert, load[2] its probabilities,
-- both [experts] and means over the tokens. With `capacity` load[3] is how many places were dropped.
local core, base, plan = ...
local fail = base.fail
local nn = plan.nn
local of = {}        -- the functions, whatever a plan does to F
for name, f in pairs(base.F) do of[name] = f end

local LARGEST = 1 << 40

-- The activation of experts: a function, or the name of one of F.
local function act_of(act, who)
  if act == nil then return of.silu end
  local f = type(act) == "string" and of[act] or act
  if type(f) ~= "function" then fail("%s's act is a function of a tensor, such as F.gelu, not %s", who, base.a(act)) end
  return f
end

--- # Mixtures of experts
--- nn.Experts(num_experts, dim, hidden, init?, act = F.silu): each expert is `down(act(gate x) * up x)`, of rows by expert. `act`:
--- a function of a tensor, or the name of one of `F`.
nn.Experts = base.own_class("Experts", {"gate_proj", "up_proj", "down_proj"},
  function(num_experts, dim, hidden, init, act)
    local experts = base.integer(num_experts, "Experts' number", 1, 1 << 20)
    dim = base.integer(dim, "Experts' size of a token", 1, LARGEST)
    hidden = base.integer(hidden, "Experts' hidden size", 1, LARGEST)
    local function weight(outputs, inputs)
      local bound = 1 / math.sqrt(inputs)
      return core.parameter("Experts",
        base.beginning({experts, outputs, inputs}, init, "Experts", "uniform", -bound, bound))
    end
    return {gate_proj = weight(hidden, dim), up_proj = weight(hidden, dim),
      down_proj = weight(dim, hidden)}, {act = act_of(act, "nn.Experts")}
  end,
  function(self, kept, rows, counts)
    local function linear(x, weight) return of.grouped_linear(x, weight, counts) end
    local h = kept.act(linear(rows, self.gate_proj)) * linear(rows, self.up_proj)
    return linear(h, self.down_proj)
  end)
base.Experts = nn.Experts

-- ---------------------------------------------------------------------------------------- routing

-- The scores of the experts outside of the best groups become too small for any choice.
local function in_best_groups(scores, groups, top)
  local by_group = of.unflatten(scores, -1, {groups, -1})
  local best = of.sum((of.topk(by_group, 2, -1)), -1)
  local _, chosen = of.topk(best, top, -1)
  local is_chosen = of.sum(of.one_hot(chosen, groups), -2)
  return of.flatten(of.where(of.gt(of.unsqueeze(is_chosen, -1), 0), by_group, -math.huge), -2)
end

-- The bias after a step: torchtitan's rule, whose changes add up to nothing. The places are
-- those of all batches of the step.
local function followed(bias, rate, counts)
  core.append("running", {of.to(counts, "float32"), bias}, {scalar = rate, balances = 1})
end

-- The experts of each token, [batch, sequence, k], and their weights.
local function routed(how, scores, bias)
  local choice = of.detach(scores)
  if bias then choice = choice + of.detach(bias) end
  if how.groups > 1 then choice = in_best_groups(choice, how.groups, how.top_groups) end
  local _, ids = of.topk(choice, how.top_k, -1)
  local weights = of.gather(scores, -1, ids)
  if how.normalize then
    local sum = of.sum(weights, -1, true)
    if how.router == "sigmoid" then sum = sum + 1e-20 end
    weights = weights / sum
  end
  if how.scale ~= 1 then weights = weights * how.scale end
  return ids, weights
end

-- ------------------------------------------------------------------------------------- capacity

-- The number of places of a sequence that an expert takes.
local function capacity_of(how, length)
  return math.max(1, math.ceil(how.capacity * length * how.top_k / how.experts))
end

-- The experts that take each place: of a sequence the first ones that name it, at most `capacity`;
-- the others name no expert. And how many are dropped.
local function within_capacity(how, ids, capacity)
  local shape = core.shape(ids)
  local named = of.flatten(ids, 1)
  local is_sent = of.to(of.one_hot(named, how.experts), "float32")
  local fits = of.le(of.sum(is_sent * of.cumsum(is_sent, 1), -1), capacity)
  local kept = of.unflatten(of.where(fits, named, -1), 1, {shape[2], shape[3]})
  return kept, of.sum(of.where(fits, 0.0, 1.0))
end

-- The output of the experts for x. A rank has room for the rows that the bound allows.
local function of_experts(how, experts, x, ids, weights, counts)
  local shape = core.shape(x)
  local rows = of.dispatch(x, ids, of.full({shape[1], shape[2], how.top_k}, 1.0), counts)
  return of.combine(experts(rows, counts), ids, weights, counts)
end

-- The number of places of each expert. dims: the dimensions of the places that the bound covers
-- together: if they are cut, the bound does not hold for a rank's part.
local function counted(how, ids, bound, dims)
  return of.count_places(ids, {sizes = {e = how.experts}, scalar = bound, dims = dims})
end

-- The places of each expert and its probabilities: means over all tokens, or of each group of samples.
local function load_of(how, ids, scores, counts)
  local samples, length = table.unpack(core.shape(ids))
  if not how.load_batch then
    return {of.to(counts, "float32") / (samples * length), of.mean(scores, {0, 1})}
  end
  if samples % how.load_batch ~= 0 then
    fail("nn.MoE: %d samples cannot be divided into groups of load_batch = %d", samples, how.load_batch)
  end
  local function mean(x) return of.mean(of.unflatten(x, 0, {-1, how.load_batch}), 1) end
  local places = of.sum(of.to(of.one_hot(ids, how.experts), "float32"), {1, 2})
  return {mean(places / length), mean(of.mean(scores, 1))}
end

-- -------------------------------------------------------------------------------------- the layer

-- The router's product, in float32 whatever its operands are.
local function in_float32(gate, x)
  return of.linear(of.to(x, "float32"), of.to(gate.weight, "float32"))
end

local OPTIONS = base.option_names("nn.MoE", {"experts", "top_k", "hidden", "router", "normalize",
  "scale", "groups", "top_groups", "shared", "shared_gate", "bias_balance", "capacity", "bound", "load_batch", "init", "act"})

local function options_of(options)
  local o = base.options(options, "nn.MoE", OPTIONS)
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
    fail("nn.MoE: %d experts cannot be divided into %d groups of two or more", how.experts, how.groups)
  end
  how.shared = base.integer(o.shared == nil and 0 or o.shared, "nn.MoE's shared", 0, LARGEST)
  how.shared_gate = o.shared_gate ~= nil and base.boolean(o.shared_gate, "nn.MoE's shared_gate")
  if how.shared_gate and how.shared == 0 then fail("nn.MoE's shared_gate is of a network that takes every token: say shared, too") end
  if o.bias_balance ~= nil then
    how.bias_balance = base.number(o.bias_balance, "nn.MoE's bias_balance", 0, 1)
  end
  if o.capacity ~= nil then
    how.capacity = base.number(o.capacity, "nn.MoE's capacity", 0, how.experts)
    if how.capacity == 0 then fail("nn.MoE's capacity must be more than 0") end
  end
  if o.bound ~= nil then
    how.bound = base.number(o.bound, "nn.MoE's bound", 1, math.huge)
    if how.capacity then fail("nn.MoE takes a capacity, which drops places, or a bound, which drops none") end
  end
  if o.load_batch ~= nil then how.load_batch = base.integer(o.load_batch, "nn.MoE's load_batch", 1, LARGEST) end
  how.init, how.act = o.init, o.act
  act_of(o.act, "nn.MoE")
  return how
end

-- A network that takes every token, beside the experts.
local SharedExperts = nn.module("SharedExperts", function(self, dim, hidden, init, act)
  local options = {bias = false, init = init}
  act = act_of(act, "nn.MoE")
  self.gate_proj, self.up_proj = nn.Linear(dim, hidden, options), nn.Linear(dim, hidden, options)
  self.down_proj = nn.Linear(hidden, dim, options)
  function self:forward(x) return self.down_proj(act(self.gate_proj(x)) * self.up_proj(x)) end
end)

--- nn.MoE(dim, options): a router and experts; a call gives the output, and a load for `F.load_balancing_loss`.
---   experts: how many there are
---   top_k: experts of a token
---   hidden: the width of an expert
---   router = "softmax": or `"sigmoid"`
---   normalize = true: a token's weights are divided by their sum
---   scale = 1: the factor of the weights after that
---   groups = 1: the experts are in so many groups
---   top_groups: a token's experts are in so many of the groups, the best by the sum of their two best scores; by
---     default in all
---   shared = 0: the width of a network that takes every token
---   shared_gate = false: its output times a sigmoid of the token's product with a weight
---   bias_balance: experts are chosen by scores plus a bias, which moves by this each step
---   capacity: in each sequence an expert takes at most so many times its mean of places; the others are dropped
---   bound: a rank has room for so many times the rows that its experts get in balance; more end the job
---   load_batch: the load is of groups of so many samples
---   init: of all weights
---   act = F.silu: the activation of the experts and of the network beside them: a function of a tensor, or the name of one of `F`
nn.MoE = nn.module("MoE", function(self, dim, options)
  local how = options_of(options)
  self.gate = nn.Linear(dim, how.experts, {bias = false, init = how.init})
  base.set_adapter(self.gate, in_float32)
  self.experts = nn.Experts(how.experts, dim, how.hidden, how.init, how.act)
  if how.shared > 0 then self.shared_experts = SharedExperts(dim, how.shared, how.init, how.act) end
  if how.shared_gate then self.shared_expert_gate = nn.Linear(dim, 1, {bias = false, init = how.init}) end
  if how.bias_balance then
    self.e_score_correction_bias = base.filled_parameter("MoE", {how.experts}, 0.0)
  end

  function self:forward(x)
    local shape = core.shape(x)
    if #shape ~= 3 then
      base.misfit("nn.MoE takes [batch, sequence, dim], not the shape %s", base.shape_text(shape))
    end
    local logits = of.to(self.gate(x), "float32")
    local scores = how.router == "softmax" and of.softmax(logits, -1) or of.sigmoid(logits)
    local bias = self.e_score_correction_bias
    local ids, weights = routed(how, scores, bias)
    local counts = counted(how, ids, how.bound)
    if bias and base.training then
      followed(bias, how.bias_balance, counts)
    end
    local load = load_of(how, ids, scores, counts)
    if how.capacity then -- which is a bound that no routing passes
      local capacity = capacity_of(how, shape[2])
      ids, load[3] = within_capacity(how, ids, capacity)
      counts = counted(how, ids, capacity * how.experts / (shape[2] * how.top_k), {1, 2})
    end
    local y = of.to(of_experts(how, self.experts, x, ids, weights, counts), core.type(x))
    if self.shared_experts then
      local z = self.shared_experts(x)
      y = y + (how.shared_gate and of.sigmoid(self.shared_expert_gate(x)) * z or z)
    end
    return y, load
  end
end)

--- F.load_balancing_loss(places, probabilities): `experts * sum(places * probabilities)`, of a load: the top_k in
--- balance.
base.method("load_balancing_loss", function(places, probabilities)
  local shape = core.shape(base.tensor(places, "the places"))
  local groups = #shape == 2 and shape[1] or 1
  return of.sum(of.detach(places) * probabilities) * (shape[#shape] / groups)
end)
