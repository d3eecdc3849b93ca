-- optimizers.lua: optimizers and schedules. An optimizer is a function of one element of a parameter, of
-- its gradient and of its states. It is run once, on things that stand for these, and what it computes
-- becomes a kernel.
local core, base, plan = ...
local fail = base.fail

local HUGE, math = math.huge, base.math
local MAX_STEPS = (1 << 31) - 1
local MOST_STATES, MOST_NUMBERS, MOST_OPERATIONS = 4, 64, 256

-- ------------------------------------------------------------------------------------- the elements

-- What an update computes with: {row =, inputs...}, or {input = 0, 1, ...}: parameter, gradient, states.
local elements = {}
local methods = {}
local meta = {__metatable = false, __tostring = function() return "an element of an update" end,
  __index = function(_, name)
    local method = methods[name]
    if not method then fail("an element of an update has no '%s'%s", tostring(name),
      core.suggestion(tostring(name), base.element_methods)) end
    return method
  end}

local function element(description)
  local e = base.make("element", setmetatable({}, meta))
  elements[e] = description
  return e
end

local recording -- the operations of the update that is being traced

local function operation(row, ...)
  local inputs = {...}
  for i, v in ipairs(inputs) do
    if not elements[v] and not base.is_scalar(v) and type(v) ~= "number" then
      fail("%s of an element takes elements and numbers, not %s", row, base.a(v))
    end
  end
  if #recording == MOST_OPERATIONS then fail("an update has at most %d operations", MOST_OPERATIONS) end
  local e = element{row = row, inputs = inputs}
  recording[#recording + 1] = e
  return e
end

function meta.__add(a, b)
  if a == 0 then return b elseif b == 0 then return a end
  return operation("add", a, b)
end

function meta.__sub(a, b)
  if b == 0 then return a end
  return operation("sub", a, b)
end

function meta.__mul(a, b)
  if a == 1 then return b elseif b == 1 then return a end
  return operation("mul", a, b)
end

function meta.__div(a, b)
  if b == 1 then return a end
  return operation("div", a, b)
end

function meta.__unm(a) return operation("neg", a) end
function meta.__pow(a, b)
  if b == 2 then return operation("square", a) end
  return operation("pow", a, b)
end

local function no_order() fail("elements of an update are not compared in Lua: say where(a:lt(b), x, y)") end
meta.__lt, meta.__le = no_order, no_order

-- A scalar beside an element gives an element: Lua asks the left one first.
local function for_elements(name)
  local of_scalars = base.scalar_meta[name]
  base.scalar_meta[name] = function(a, b)
    if elements[a] or elements[b] then return meta[name](a, b) end
    return of_scalars(a, b)
  end
end
for _, name in ipairs{"__add", "__sub", "__mul", "__div", "__pow"} do for_elements(name) end

base.element_methods = {}
for row, inputs in pairs(core.element_rows()) do
  methods[row] = function(...)
    if select("#", ...) ~= inputs then
      fail("%s of elements takes %d of them, not %d", row, inputs, select("#", ...))
    end
    return operation(row, ...)
  end
end
function methods.sign(x) return operation("abs_back", 1, x) end
function methods.clamp(x, least, most)
  if least ~= nil then x = operation("maximum", x, least) end
  if most ~= nil then x = operation("minimum", x, most) end
  return x
end
methods.where = function(x, condition, other) return operation("where", condition, x, other) end
function methods.lerp(x, to, weight) return x + weight * (to - x) end
for name in pairs(methods) do base.element_methods[#base.element_methods + 1] = name end

-- ------------------------------------------------------------------------------------- the settings

local makers = {} -- by optimizer: its definition, its settings, its line
local ORDINALS = {"first", "second", "third", "fourth"}

-- What a plan gave for a setting, or the default, which says its kind.
local function setting(who, key, value, default)
  if value == nil then return default end
  if type(default) == "boolean" then return base.boolean(value, who .. "'s " .. key) end
  if type(default) == "number" then return base.number(value, who .. "'s " .. key, 0, HUGE) end
  base.expect(value, "table", who .. "'s " .. key)
  if base.length(value, who .. "'s " .. key) ~= #default then
    fail("%s's %s are %d numbers, not %d", who, key, #default, #value)
  end
  local list, one = {}, string.gsub(key, "s$", "")
  for i = 1, #default do
    list[i] = base.number(value[i], string.format("%s's %s %s", who, ORDINALS[i] or tostring(i), one), 0,
      1)
  end
  return list
end

-- "lr 0.1, betas 0.9 0.95, weight decay 0.01": in the order of the names after lr.
local function settings_text(settings)
  local texts = {"lr " .. base.scalar_text(settings.lr)}
  for key, value in pairs(settings) do
    local name = string.gsub(key, "_", " ")
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

local function is_identifier(name)
  return type(name) == "string" and string.find(name, "^[a-z][a-z0-9_]*$") ~= nil and #name < 64
end

-- optimizer{name =, defaults = {lr = ..., ...}, state = a list of names or a function of the settings,
-- update = function(p, g, state, o)}: a function that makes such an optimizer of settings.
function plan.optimizer(definition)
  definition = base.options(definition, "optimizer", {"name", "defaults", "state", "update", "check"})
  local name = base.expect(definition.name, "string", "optimizer's name")
  if not string.find(name, "^%a[%w_]*$") or #name > 63 then
    fail("optimizer's name is letters and digits, not %s", base.a(name))
  end
  base.expect(definition.update, "function", "optimizer's update")
  local given = base.expect(definition.defaults or {}, "table", "optimizer's defaults")
  local defaults = {}
  for key, value in pairs(given) do
    local kind = type(value)
    if not is_identifier(key) then fail("optimizer's defaults have names, not %s", base.a(key)) end
    if kind ~= "number" and kind ~= "boolean" and base.kind(value) ~= "table" then
      fail("optimizer's default %s is a number, true, false or a list of numbers, not %s", key, base.a(value))
    end
    defaults[key] = value
  end
  defaults.lr = defaults.lr or 1e-3
  local own = {name = name, defaults = defaults, state = definition.state or {},
    update = definition.update, check = definition.check}
  return function(options)
    local settings = settings_of(own, options)
    local o = base.make("optimizer", base.named(name))
    makers[o] = {definition = own, settings = settings, line = core.line()}
    return o
  end
end

-- -------------------------------------------------------------------------------------- the update

-- The numbers of an update, in the order of their first use: constants and those of the step.
local function number_of(traced, v)
  local key = base.is_scalar(v) and base.scalar_text(v) or v + 0.0
  if traced.number[key] then return traced.number[key] end
  local entry = {value = key}
  if type(key) == "string" then
    local wanted = traced.names[key] or key == "$lr$" and "rate" or "factor"
    local name, again = wanted, 1
    while traced.given[name] do again = again + 1; name = wanted .. "_" .. again end
    traced.given[name] = true
    entry = {name = name, text = key}
  end
  if #traced.numbers == MOST_NUMBERS then fail("an update has at most %d numbers", MOST_NUMBERS) end
  traced.numbers[#traced.numbers + 1] = entry
  traced.number[key] = #traced.numbers - 1
  return #traced.numbers - 1
end

-- The settings as the update gets them: with lr and step as scalars, named and at_step.
local function given_settings(settings, names)
  local o = {}
  for key, value in pairs(settings) do o[key] = value end
  o.lr, o.step = base.scalar_rate, base.scalar_step
  function o.named(name, v)
    if not is_identifier(name) then fail("named: a name is of small letters, not %s", base.a(name)) end
    if base.is_scalar(v) then names[base.scalar_text(v)] = name end
    return v
  end
  function o.at_step(f)
    return base.scalar_of(base.expect(f, "function", "what at_step is given"), "what at_step's function gives",
      base.scalar_step)
  end
  return core.forbid_absent(o, "the settings")
end

local function states_of(definition, settings)
  local states = definition.state
  if type(states) == "function" then states = states(settings) end
  base.expect(states, "table", definition.name .. "'s state")
  local list = {}
  for i, name in ipairs(states) do
    if not is_identifier(name) then
      fail("%s's state is a list of names of small letters; one is %s", definition.name, base.a(name))
    end
    list[i] = name
  end
  return list
end

-- Traces the update and what goes around it: clipping by value before it, the moving average after it.
local function run_update(made, way, traced, states)
  local definition, settings = made.definition, made.settings
  recording = {}
  local p, g, state = element{input = 0}, element{input = 1}, {}
  for i, name in ipairs(states) do state[name] = element{input = 1 + i} end
  if way.clip_value then
    g = operation("minimum", operation("maximum", g, -way.clip_value), way.clip_value)
  end
  local seen = {}
  for name, e in pairs(state) do seen[name] = e end
  local new_p, new = definition.update(p, g, core.forbid_absent(seen, definition.name .. "'s state"),
    given_settings(settings, traced.names))
  if base.kind(new_p) ~= "element" then
    fail("%s's update gives the new parameter, made of elements, not %s", definition.name, base.a(new_p))
  end
  new = new == nil and {} or base.expect(new, "table", "the states that " .. definition.name .. "'s update gives")
  for name in pairs(new) do
    if not state[name] then fail("%s's update gives a state '%s', which is not in its list", definition.name,
      tostring(name)) end
  end
  if way.ema then
    local keep = given_settings(settings, traced.names).at_step(function(t)
      if t <= 1 then return 0 end
      return way.ema
    end)
    traced.names[base.scalar_text(keep)] = "ema_keep"
    traced.names[base.scalar_text(1 - keep)] = "ema_take"
    new.ema = keep * state.ema + (1 - keep) * new_p
  end
  local out = {new_p}
  for i, name in ipairs(states) do
    local e = new[name]
    if e == nil then e = state[name] end
    if type(e) == "number" or base.is_scalar(e) then e = operation("add", operation("mul", p, 0), e) end
    out[i + 1] = base.expect(e, "element", definition.name .. "'s new " .. name)
  end
  local steps = recording
  recording = nil
  return steps, out
end

-- The optimizer of a group as set_optimizers takes it. way: {clip_value =, ema =, rate =, schedule =,
-- match =}
function base.traced_optimizer(made, way)
  local states = states_of(made.definition, made.settings)
  if way.ema then states[#states + 1] = "ema" end
  if #states > MOST_STATES then fail("%s: a parameter has at most %d states", made.definition.name, MOST_STATES) end
  local traced = {numbers = {}, number = {}, names = {}, given = {}}
  local steps, out = run_update(made, way, traced, states)
  local place, list = {}, {}
  for _, e in ipairs(steps) do
    for _, v in ipairs(elements[e].inputs) do
      if not elements[v] then number_of(traced, v) end
    end
  end
  local first_number = 2 + #states
  local first_step = first_number + #traced.numbers
  local function operand(v)
    if not elements[v] then return first_number + number_of(traced, v) end
    return elements[v].input or place[v] or fail("an element of another update is used")
  end
  for i, e in ipairs(steps) do
    list[i] = {row = elements[e].row}
    for k, v in ipairs(elements[e].inputs) do list[i][k] = operand(v) end
    place[e] = first_step + i - 1
  end
  for i, e in ipairs(out) do out[i] = operand(e) end
  local settings = settings_text(made.settings)
  if way.clip_value then settings = settings .. ", gradients clipped to " .. base.scalar_text(way.clip_value) end
  if way.ema then settings = settings .. ", moving average " .. base.scalar_text(way.ema) end
  return {name = made.definition.name, settings = settings, match = way.match, rate = way.rate,
    schedule = way.schedule, line = made.line, states = states, numbers = traced.numbers, steps = list,
    out = out}
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

-- p less Adam's step; keep: what weight decay leaves of p.
local function adam(p, g, state, o, keep)
  local beta1, beta2 = o.betas[1], o.betas[2]
  local rate = o.named("rate", o.lr / (1 - beta1 ^ o.step))
  local root = o.named("root", 1 / math.sqrt(1 - beta2 ^ o.step))
  local m = beta1 * state.exp_avg + (1 - beta1) * g
  local v = beta2 * state.exp_avg_sq + (1 - beta2) * g * g
  local new, most = {exp_avg = m, exp_avg_sq = v}, v
  if o.amsgrad then
    most = state.max_exp_avg_sq:maximum(v)
    new.max_exp_avg_sq = most
  end
  return keep * p - rate * m / (root * most:sqrt() + o.eps), new
end

local function adam_states(o)
  if o.amsgrad then return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"} end
  return {"exp_avg", "exp_avg_sq"}
end

plan.AdamW = plan.optimizer{
  name = "AdamW",
  defaults = {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 1e-2, amsgrad = false,
    maximize = false},
  state = adam_states,
  update = function(p, g, state, o)
    if o.maximize then g = -g end
    return adam(p, g, state, o, o.named("keep", 1 - o.lr * o.weight_decay))
  end,
}

plan.Adam = plan.optimizer{
  name = "Adam",
  defaults = {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, amsgrad = false,
    maximize = false},
  state = adam_states,
  update = function(p, g, state, o) return adam(p, gradient(p, g, o), state, o, 1) end,
}

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

plan.Lion = plan.optimizer{
  name = "Lion",
  defaults = {lr = 1e-4, betas = {0.9, 0.99}, weight_decay = 0},
  state = {"exp_avg"},
  update = function(p, g, state, o)
    local beta1, beta2, m = o.betas[1], o.betas[2], state.exp_avg
    local to = beta1 * m + (1 - beta1) * g
    return o.named("keep", 1 - o.lr * o.weight_decay) * p - o.lr * to:sign(),
      {exp_avg = beta2 * m + (1 - beta2) * g}
  end,
}

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

-- -------------------------------------------------------------------------------------- schedules

-- A schedule: {rate = function(t, lr, steps), about = function(steps)}. The rate is the scalar or number of
-- step t; lr is the optimizer's, steps train's.
local schedules = {}

local function add_schedule(name, fields)
  local s = base.make("schedule", base.named(name))
  schedules[s] = fields
  return s
end

local function schedule_options(who, options, names)
  options = base.options(options, who, names)
  local o = {}
  for key, value in pairs(options) do
    if key == "least" then
      o.least = base.number(value, who .. "'s least", 0, HUGE)
      if o.least > 1 then fail("%s's least is a part of the learning rate, at most 1", who) end
    else
      o[key] = base.integer(value, who .. "'s " .. key, key == "steps" and 1 or 0, MAX_STEPS)
    end
  end
  o.least = o.least or 0
  return o
end

local function check_span(who, what, n, last)
  if n > last then fail("%s: %s takes %d steps, more than all %d", who, what, n, last) end
end

-- The schedule, after a line up to the rate in the steps to `warmup`.
local function warmed(t, lr, warmup, after)
  if warmup > 0 and t <= warmup then return lr * t / warmup end
  return after(warmup)
end

local function up_text(warmup)
  return warmup > 0 and string.format("a line up to step %d, ", warmup) or ""
end

-- WarmupCosine{warmup =, steps =, least =}: the learning rate of step t is the optimizer's times
--   t / warmup                                                             while t <= warmup
--   least + (1 - least) (1 + cos(pi (t - warmup) / (steps - warmup))) / 2  while t <= steps
--   least                                                                  from then on
--
-- as in torchtitan. By default steps is train's, warmup 0, least 0. With least = 1 it stays up
-- after the warm-up.
function plan.WarmupCosine(options)
  local o = schedule_options("WarmupCosine", options, {"warmup", "steps", "least"})
  local warmup = o.warmup or 0
  return add_schedule("WarmupCosine", {
    check = function(steps) check_span("WarmupCosine", "warmup", warmup, o.steps or steps) end,
    about = function(steps)
      return up_text(warmup) .. string.format("a cosine down to step %d", o.steps or steps)
    end,
    rate = function(t, lr, steps)
      local last, least = o.steps or steps, o.least * lr
      return warmed(t, lr, warmup, function()
        if t >= last then return least end
        return least + (lr - least) * (1 + math.cos(math.pi * (t - warmup) / (last - warmup))) / 2
      end)
    end,
  })
end

-- Linear{warmup =, steps =, least =}: a line down to its part `least` at step `steps`.
function plan.WarmupLinear(options)
  local o = schedule_options("WarmupLinear", options, {"warmup", "steps", "least"})
  local warmup = o.warmup or 0
  return add_schedule("WarmupLinear", {
    check = function(steps) check_span("WarmupLinear", "warmup", warmup, o.steps or steps) end,
    about = function(steps)
      return up_text(warmup) .. string.format("a line down to step %d", o.steps or steps)
    end,
    rate = function(t, lr, steps)
      local last, least = o.steps or steps, o.least * lr
      return warmed(t, lr, warmup, function()
        if t >= last then return least end
        return lr - (lr - least) * (t - warmup) / (last - warmup)
      end)
    end,
  })
end

-- WarmupInverseSqrt{warmup =}: after the warm-up the rate times sqrt(warmup / t).
function plan.WarmupInverseSqrt(options)
  local o = schedule_options("WarmupInverseSqrt", options, {"warmup"})
  local warmup = o.warmup or 0
  return add_schedule("WarmupInverseSqrt", {
    check = function() end,
    about = function() return up_text(warmup) .. "then as one over the root of the step" end,
    rate = function(t, lr)
      return warmed(t, lr, warmup, function() return lr * math.sqrt(math.max(warmup, 1)) / math.sqrt(t) end)
    end,
  })
end

-- WSD{warmup =, decay =, steps =, least =}: warm-up, then the rate stays, then a line down to its part
-- `least` in the last `decay` steps, by default a tenth of them.
function plan.WSD(options)
  local o = schedule_options("WSD", options, {"warmup", "decay", "steps", "least"})
  local warmup = o.warmup or 0
  local function span(steps)
    local last = o.steps or steps
    return last, o.decay or (last + 9) // 10
  end
  return add_schedule("WSD", {
    check = function(steps)
      local last, decay = span(steps)
      check_span("WSD", "warmup and decay", warmup + decay, last)
    end,
    about = function(steps)
      local last, decay = span(steps)
      return up_text(warmup) .. string.format("flat to step %d, a line down to step %d", last - decay, last)
    end,
    rate = function(t, lr, steps)
      local last, decay = span(steps)
      local least = o.least * lr
      return warmed(t, lr, warmup, function()
        if t <= last - decay then return lr end
        if t >= last then return least end
        return least + (lr - least) * (last - t) / decay
      end)
    end,
  })
end

-- The learning rate as {rate = its text, schedule = in words}: of a schedule, a function that gives a
-- factor, or nothing.
function base.rate_of(schedule, lr, steps, who)
  local t = base.scalar_step
  if schedule == nil then return {rate = base.scalar_text(lr), schedule = ", the same at every step"} end
  if type(schedule) == "function" then
    local rate = base.scalar_of(function(at)
      return lr * base.expect_number(schedule(at), "what " .. who .. "'s function gives") end, who .. "'s function", t)
    return {rate = base.scalar_text(rate), schedule = " of step t, counted from 1, by the plan's function"}
  end
  local s = schedules[base.expect(schedule, "schedule", who)]
  s.check(steps)
  local rate = base.scalar_of(function(at) return s.rate(at, lr, steps) end, who, t)
  return {rate = base.scalar_text(rate), schedule = " of step t, counted from 1: " .. s.about(steps)}
end
