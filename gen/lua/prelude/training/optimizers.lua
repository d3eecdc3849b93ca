-- optimizers.lua: optimizers: their settings, and those of PyTorch. An optimizer is a function of a parameter,
-- its gradient and its states, which updates.lua traces.
local core, base, plan = ...
local fail = base.fail

local HUGE, math = math.huge, base.math

-- ------------------------------------------------------------------------------------- the settings

local makers = {} -- by optimizer: its definition, its settings, its line
local ORDINALS = {"first", "second", "third", "fourth"}

-- The value of a setting, or the default, which defines its kind.
local function setting(who, key, value, default)
  if value == nil then return default end
  if type(default) == "boolean" then return base.boolean(value, who .. "'s " .. key) end
  if type(default) == "string" then return base.expect(value, "string", who .. "'s " .. key) end
  if type(default) == "number" then
    return base.number(value, who .. "'s " .. key, default < 0 and -HUGE or 0, HUGE)
  end
  base.expect(value, "table", who .. "'s " .. key)
  if base.length(value, who .. "'s " .. key) ~= #default then
    fail("%s's %s are %d numbers, not %d", who, key, #default, #value)
  end
  local list, one, any = {}, string.gsub(key, "s$", ""), false
  for i = 1, #default do any = any or default[i] < 0 or default[i] > 1 end
  for i = 1, #default do
    list[i] = base.number(value[i], string.format("%s's %s %s", who, ORDINALS[i] or tostring(i), one),
      any and -HUGE or 0, any and HUGE or 1)
  end
  return list
end

-- "lr 0.1, betas 0.9 0.95, weight decay 0.01": in the order of the names after lr.
function base.settings_text(settings)
  local texts = {"lr " .. base.scalar_text(settings.lr)}
  for key, value in pairs(settings) do
    local name = string.gsub(key, "_", " ")
    if type(value) == "string" then texts[#texts + 1] = name .. " " .. value end
    if value == true then texts[#texts + 1] = name end
    if type(value) == "number" and key ~= "lr" and value ~= 0 then
      texts[#texts + 1] = name .. " " .. base.scalar_text(value)
    end
    if type(value) == "table" then
      local numbers = {}
      for i, v in ipairs(value) do numbers[i] = base.scalar_text(v) end
      texts[#texts + 1] = name .. " " .. table.concat(numbers, " ")
    end
  end
  return table.concat(texts, ", ")
end

local function settings_of(definition, options, before)
  local names, settings = {}, {}
  for key in pairs(definition.defaults) do names[#names + 1] = key end
  options = base.options(options, definition.name, names)
  for key, default in pairs(definition.defaults) do
    local otherwise = default
    if before then otherwise = before[key] end
    settings[key] = setting(definition.name, key, options[key], default)
    if options[key] == nil then settings[key] = otherwise end
  end
  if definition.check then definition.check(settings) end
  return settings
end

-- optimizer{name =, defaults = {lr = ..., ...}, state = a list of names or a function of the settings,
-- update = function(p, g, state, o), by_part = whether parts of a parameter are tensors of their own}: a function that
-- makes such an optimizer of settings.
--- # Optimizers
--- optimizer(definition): a function that makes an optimizer of settings.
---   name: of letters and digits
---   defaults: the settings with their defaults; `lr` is 1e-3 if left out
---   state: names of states, which begin at 0, or a function of the settings and the shape
---   update: `function(p, g, state, o)`: the new parameter, and a table of new states
---   check: a function of the settings
---   by_part = false: parts of a parameter are tensors of their own
local DEFINITION = base.option_names("optimizer", {"name", "defaults", "state", "update", "check", "by_part"})

-- By function that makes an optimizer: its settings with their defaults.
base.defaults_of_optimizers = {}

function plan.optimizer(definition)
  definition = base.options(definition, "optimizer", DEFINITION)
  local name = base.expect(definition.name, "string", "optimizer's name")
  if not string.find(name, "^%a[%w_]*$") or #name > 63 then
    fail("optimizer's name is letters and digits, not %s", base.a(name))
  end
  base.expect(definition.update, "function", "optimizer's update")
  local given = base.expect(definition.defaults or {}, "table", "optimizer's defaults")
  local defaults = {}
  for key, value in pairs(given) do
    local kind = type(value)
    if not base.is_identifier(key) then fail("optimizer's defaults have names, not %s", base.a(key)) end
    if kind ~= "number" and kind ~= "boolean" and kind ~= "string" and base.kind(value) ~= "table" then
      fail("optimizer's default %s is a number, true, false, a text or a list of numbers, not %s", key, base.a(value))
    end
    defaults[key] = value
  end
  defaults.lr = defaults.lr or 1e-3
  local own = {name = name, defaults = defaults, state = definition.state or {},
    update = definition.update, check = definition.check,
    by_part = base.boolean(definition.by_part or false, "optimizer's by_part")}
  local function maker(options)
    local settings = settings_of(own, options)
    local o = base.make("optimizer", base.named(name))
    makers[o] = {definition = own, settings = settings, line = core.line()}
    return o
  end
  base.defaults_of_optimizers[maker] = defaults
  return maker
end

function base.optimizer_made(o)
  return makers[o]
end

-- The same optimizer with other settings.
function base.optimizer_with(made, options)
  return {definition = made.definition, line = made.line,
    settings = settings_of(made.definition, options, made.settings)}
end

-- --------------------------------------------------------------------- the optimizers, as in torch.optim

-- The gradient as all of them take it.
local function gradient(p, g, o)
  if o.maximize then g = -g end
  if o.weight_decay ~= 0 then g = g + o.weight_decay * p end
  return g
end

-- p minus Adam's step; keep: the part of p that weight decay leaves.
local function adam(p, g, state, o, keep)
  local beta1, beta2 = o.betas[1], o.betas[2]
  local step_size = o.named("step_size", o.lr / (1 - beta1 ^ o.step))
  local root = o.named("inv_bias_correction2_sqrt", 1 / math.sqrt(1 - beta2 ^ o.step))
  local m = beta1 * state.exp_avg + (1 - beta1) * g
  local v = beta2 * state.exp_avg_sq + (1 - beta2) * g * g
  local new, most = {exp_avg = m, exp_avg_sq = v}, v
  if o.amsgrad then
    most = state.max_exp_avg_sq:maximum(v)
    new.max_exp_avg_sq = most
  end
  return keep * p - step_size * m / (root * most:sqrt() + o.eps), new
end

local function adam_states(o)
  if o.amsgrad then return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"} end
  return {"exp_avg", "exp_avg_sq"}
end

--- AdamW(options?): torch.optim.AdamW.
plan.AdamW = plan.optimizer{
  name = "AdamW",
  defaults = {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 1e-2, amsgrad = false,
    maximize = false},
  state = adam_states,
  update = function(p, g, state, o)
    if o.maximize then g = -g end
    return adam(p, g, state, o, o.named("weight_decay_factor", 1 - o.lr * o.weight_decay))
  end,
}

--- Adam(options?): torch.optim.Adam.
plan.Adam = plan.optimizer{
  name = "Adam",
  defaults = {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, amsgrad = false,
    maximize = false},
  state = adam_states,
  update = function(p, g, state, o) return adam(p, gradient(p, g, o), state, o, 1) end,
}

--- SGD(options?): torch.optim.SGD.
plan.SGD = plan.optimizer{
  name = "SGD",
  defaults = {lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0, nesterov = false,
    maximize = false},
  state = function(o) return o.momentum > 0 and {"momentum"} or {} end,
  check = function(o)
    if o.nesterov and o.momentum == 0 then fail("SGD's nesterov needs a momentum") end
    if o.nesterov and o.dampening ~= 0 then fail("SGD's nesterov goes without dampening") end
  end,
  update = function(p, g, state, o)
    g = gradient(p, g, o)
    if o.momentum == 0 then return p - o.lr * g end
    local take = 1
    if o.dampening ~= 0 then
      take = o.named("take", o.at_step(function(t)
        if t <= 1 then return 1 end
        return 1 - o.dampening
      end))
    end
    local m = o.momentum * state.momentum + take * g
    return p - o.lr * (o.nesterov and g + o.momentum * m or m), {momentum = m}
  end,
}

--- Lion(options?): Lion.
plan.Lion = plan.optimizer{
  name = "Lion",
  defaults = {lr = 1e-4, betas = {0.9, 0.99}, weight_decay = 0},
  state = {"exp_avg"},
  update = function(p, g, state, o)
    local beta1, beta2, m = o.betas[1], o.betas[2], state.exp_avg
    local to = beta1 * m + (1 - beta1) * g
    return o.named("weight_decay_factor", 1 - o.lr * o.weight_decay) * p - o.lr * to:sign(),
      {exp_avg = beta2 * m + (1 - beta2) * g}
  end,
}

--- RMSprop(options?): torch.optim.RMSprop.
plan.RMSprop = plan.optimizer{
  name = "RMSprop",
  defaults = {lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0, centered = false,
    maximize = false},
  state = function(o)
    local states = {"square_avg"}
    if o.momentum > 0 then states[2] = "momentum_buffer" end
    if o.centered then states[#states + 1] = "grad_avg" end
    return states
  end,
  update = function(p, g, state, o)
    g = gradient(p, g, o)
    local v = o.alpha * state.square_avg + (1 - o.alpha) * g * g
    local new, square = {square_avg = v}, v
    if o.centered then
      new.grad_avg = o.alpha * state.grad_avg + (1 - o.alpha) * g
      square = v - new.grad_avg * new.grad_avg
    end
    local to = g / (square:sqrt() + o.eps)
    if o.momentum > 0 then
      to = o.momentum * state.momentum_buffer + to
      new.momentum_buffer = to
    end
    return p - o.lr * to, new
  end,
}

--- Adagrad(options?): torch.optim.Adagrad.
plan.Adagrad = plan.optimizer{
  name = "Adagrad",
  defaults = {lr = 1e-2, lr_decay = 0, weight_decay = 0, eps = 1e-10, maximize = false},
  state = {"sum"},
  update = function(p, g, state, o)
    g = gradient(p, g, o)
    local sum = state.sum + g * g
    local rate = o.named("rate", o.lr / (1 + (o.step - 1) * o.lr_decay))
    return p - rate * g / (sum:sqrt() + o.eps), {sum = sum}
  end,
}

-- ------------------------------------------------------------------------------- of the whole tensor

local function one_of(who, value, ...)
  for _, name in ipairs{...} do
    if value == name then return end
  end
  fail('%s is "%s", not "%s"', who, table.concat({...}, '" or "'), value)
end

-- As in the paper, You and others 2020, algorithm 2: Adam's step, in length the parameter's own times the rate.
--- LAMB(options?): Adam's step, in length the parameter's own times the rate.
plan.LAMB = plan.optimizer{
  name = "LAMB",
  defaults = {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-6, weight_decay = 0.01},
  state = {"exp_avg", "exp_avg_sq"},
  update = function(p, g, state, o)
    local beta1, beta2 = o.betas[1], o.betas[2]
    local scale = o.named("scale", 1 / (1 - beta1 ^ o.step))
    local root = o.named("inv_bias_correction2_sqrt", 1 / math.sqrt(1 - beta2 ^ o.step))
    local m = beta1 * state.exp_avg + (1 - beta1) * g
    local v = beta2 * state.exp_avg_sq + (1 - beta2) * g * g
    local to = scale * m / (root * v:sqrt() + o.eps)
    if o.weight_decay ~= 0 then to = to + o.weight_decay * p end
    local length, step = p:norm(), to:norm()
    local trust = (length / step):where(length:gt(0):logical_and(step:gt(0)), 1)
    return p - o.lr * trust * to, {exp_avg = m, exp_avg_sq = v}
  end,
}

-- eps[1] is PyTorch's for float32.
--- Adafactor(options?): torch.optim.Adafactor.
plan.Adafactor = plan.optimizer{
  name = "Adafactor",
  defaults = {lr = 1e-2, beta2_decay = -0.8, eps = {2 ^ -23, 1e-3}, d = 1.0, weight_decay = 0,
    maximize = false},
  state = function(_, shape)
    if #shape < 2 then return {"variance"} end
    local row, column = {}, {}
    for i = 1, #shape do row[i], column[i] = shape[i], shape[i] end
    row[#shape], column[#shape - 1] = 1, 1
    return {{"row_var", row}, {"col_var", column}}
  end,
  update = function(p, g, state, o)
    if o.maximize then g = -g end
    local new, estimate = {}, nil
    local take = o.named("take", o.step ^ o.beta2_decay)
    local rate = o.named("rate", base.math.min(o.lr, 1 / math.sqrt(o.step)))
    local alpha = (p:norm() / math.sqrt(p:numel())):maximum(o.eps[2]) * rate
    if g:dim() > 1 then
      local square = g * g
      new.row_var = state.row_var:lerp(square:mean(-1, true), take)
      new.col_var = state.col_var:lerp(square:mean(-2, true), take)
      estimate = new.row_var * new.col_var / new.row_var:mean(-2, true):maximum(o.eps[1])
    else
      new.variance = state.variance:lerp(g * g, take)
      estimate = new.variance
    end
    local to = estimate:maximum(o.eps[1] * o.eps[1]):rsqrt() * g
    local most = (to:norm() / (math.sqrt(p:numel()) * o.d)):maximum(1)
    if o.weight_decay ~= 0 then p = o.named("weight_decay_factor", 1 - o.lr * o.weight_decay) * p end
    return p - alpha / most * to, new
  end,
}

-- The nearest orthogonal matrix, nearly, by steps of Newton and Schulz: each is a X + (b A + c A A) X, with A = X X^T.
-- Of a stack each matrix, on the rank that has it: ranks mostly have some of them.
local function orthogonal(x, o)
  local is_stack, transposed = x:dim() == 3, x:size(-2) > x:size(-1)
  local a, b, c = table.unpack(o.ns_coefficients)
  x = x:to(o.dtype)
  if not is_stack then x = x:to_owner() end
  if transposed then x = x:mT() end
  x = x / (is_stack and x:norm(2, {-2, -1}, true) or x:norm()):maximum(o.eps)
  for _ = 1, o.ns_steps do
    local gram = x:matmul(x:mT())
    x = a * x + (b * gram + c * gram:matmul(gram)):matmul(x)
  end
  if transposed then x = x:mT() end
  return (is_stack and x or x:cut()):to("float32")
end

--- Muon(options?): the nearest orthogonal matrix of the momentum; of matrices and stacks of them.
plan.Muon = plan.optimizer{
  name = "Muon",
  defaults = {lr = 1e-3, weight_decay = 0.1, momentum = 0.95, nesterov = true,
    ns_coefficients = {3.4445, -4.7750, 2.0315}, eps = 1e-7, ns_steps = 5, adjust_lr_fn = "original",
    dtype = "bfloat16"},
  state = {"momentum_buffer"}, by_part = true,
  check = function(o)
    one_of("Muon's adjust_lr_fn", o.adjust_lr_fn, "original", "match_rms_adamw")
    one_of("Muon's dtype", o.dtype, "bfloat16", "float32")
    base.integer(o.ns_steps, "Muon's ns_steps", 0, 20)
  end,
  update = function(p, g, state, o)
    if p:dim() ~= 2 and p:dim() ~= 3 then
      fail("Muon trains matrices, and stacks of them, and %s has %d dimension%s: give it another optimizer in train's groups",
        base.update_of, p:dim(), p:dim() == 1 and "" or "s")
    end
    local m = state.momentum_buffer:lerp(g, 1 - o.momentum)
    local to = orthogonal(o.nesterov and g:lerp(m, o.momentum) or m, o)
    local rows, columns = p:size(-2), p:size(-1)
    local times = math.sqrt(math.max(1, rows / columns))
    if o.adjust_lr_fn == "match_rms_adamw" then times = 0.2 * math.sqrt(math.max(rows, columns)) end
    return o.named("weight_decay_factor", 1 - o.lr * o.weight_decay) * p - o.lr * times * to, {momentum_buffer = m}
  end,
}
