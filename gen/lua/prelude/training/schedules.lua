-- schedules.lua: the schedules of the learning rate.
local core, base, plan = ...
local fail = base.fail

local HUGE, math = math.huge, base.math
local MAX_STEPS = (1 << 31) - 1

-- -------------------------------------------------------------------------------------- schedules

-- A schedule: {rate = function(t, lr, steps), about = function(steps)}. The rate is the scalar or number of
-- step t; lr is the optimizer's, steps train's.
local schedules = {}

local function add_schedule(name, fields)
  local s = base.make("schedule", base.named(name))
  schedules[s] = fields
  return s
end

local function schedule_options(who, options)
  options = base.options(options, who, base.known_options[who])
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
--- # Schedules
--- WarmupCosine(options?): the rate rises along a line, then falls along a cosine.
---   warmup = 0: steps in which it rises
---   steps: with which it ends; by default train's
---   least = 0: the part of the rate at the end
base.option_names("WarmupCosine", {"warmup", "steps", "least"})
function plan.WarmupCosine(options)
  local o = schedule_options("WarmupCosine", options)
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
--- WarmupLinear(options?): the rate rises along a line, then falls along a line.
---   warmup = 0: steps in which it rises
---   steps: with which it ends; by default train's
---   least = 0: the part of the rate at the end
base.option_names("WarmupLinear", {"warmup", "steps", "least"})
function plan.WarmupLinear(options)
  local o = schedule_options("WarmupLinear", options)
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

--- WarmupInverseSqrt(options?): the rate rises along a line, then falls as `sqrt(warmup / t)`.
---   warmup: steps in which it rises
base.option_names("WarmupInverseSqrt", {"warmup"})
function plan.WarmupInverseSqrt(options)
  local o = schedule_options("WarmupInverseSqrt", options)
  local warmup = o.warmup or 0
  return add_schedule("WarmupInverseSqrt", {
    check = function() end,
    about = function() return up_text(warmup) .. "then as one over the root of the step" end,
    rate = function(t, lr)
      return warmed(t, lr, warmup, function() return lr * math.sqrt(math.max(warmup, 1)) / math.sqrt(t) end)
    end,
  })
end

--- WSD(options?): the rate rises along a line, stays, and falls along a line.
---   warmup = 0: steps in which it rises
---   decay: steps in which it falls; by default a tenth of all
---   steps: with which it ends; by default train's
---   least = 0: the part of the rate at the end
base.option_names("WSD", {"warmup", "decay", "steps", "least"})
function plan.WSD(options)
  local o = schedule_options("WSD", options)
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
