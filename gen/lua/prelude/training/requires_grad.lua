-- requires_grad.lua: which parameters are trained. A frozen one has no gradient and no state.
local core, base, plan = ...
local fail = base.fail

-- requires_grad: as in PyTorch, true unless given. pattern: of names of parameters, or of modules
-- that hold them; nil: all. Returns the number of parameters that match.
function base.set_trained(who, what, requires_grad, pattern)
  if requires_grad == nil then requires_grad = true end
  base.boolean(requires_grad, who .. "'s requires_grad")
  if base.begun then fail("%s comes before train and infer", who) end
  return core.freeze(what, not requires_grad, pattern)
end

-- parameter:requires_grad_(true or false)
--- # Frozen parameters
--- x:requires_grad_(input, is_trained = true): whether a parameter is trained; `module:requires_grad_(false)` is for
--- all of a module.
base.as_method("requires_grad_", function(input, is_trained)
  if core.recording() then
    base.misfit("it comes before train and infer; in a forward x:detach() stops gradients")
  end
  base.set_trained("requires_grad_", input, is_trained)
  return input
end)

local MOST_NEAREST = 2000

local function nothing_matches(who, model, pattern)
  local names, list = core.parameter_names(model), {}
  names = table.move(names, 1, math.min(#names, MOST_NEAREST), 1, {})
  local near = core.nearest(pattern, names)
  for i = 1, math.min(#near, 3) do list[i] = "'" .. near[i] .. "'" end
  fail("%s: no parameter of the %s matches '%.80s'%s", who, base.class_name(model), pattern,
    #list > 0 and "; the nearest names are " .. table.concat(list, ", ") or "")
end

-- The patterns that an argument gives: a text, or a list of them.
function base.patterns(v, what)
  if type(v) == "string" then v = {v} end
  base.expect(v, "table", what)
  local list = {}
  for i = 1, base.length(v, what) do
    list[i] = base.expect(rawget(v, i), "string", string.format("%s[%d]", what, i))
    if #list[i] > 1000 then fail("%s[%d]: a pattern of %d letters", what, i, #list[i]) end
  end
  return list
end

local function for_each(who, requires_grad)
  return function(model, match)
    base.expect(model, "module", "the first argument of " .. who)
    if match == nil then
      base.set_trained(who, model, requires_grad)
      return model
    end
    for _, pattern in ipairs(base.patterns(match, who .. "'s patterns")) do
      if base.set_trained(who, model, requires_grad, pattern) == 0 then
        nothing_matches(who, model, pattern)
      end
    end
    return model
  end
end

--- freeze(model, match?): parameters that are not trained: a pattern of names of parameters or modules, a list, or
--- all.
--- unfreeze(model, match?): the opposite.
plan.freeze, plan.unfreeze = for_each("freeze", false), for_each("unfreeze", true)
