-- precision.lua: mixed_precision: a model computes in a narrower type than that of its parameters.
--
--   model = mixed_precision(model, {param_dtype = "bfloat16", reduce_dtype = "float32"})
--
-- The names and their meaning are those of torch.distributed.fsdp.MixedPrecisionPolicy:
--
--   param_dtype          each use of a parameter in a forward is of its cast to this type; the
--                        parameter, its gradient and the optimizer's state stay float32
--   reduce_dtype         in which parameters' gradients are summed over ranks: param_dtype, unless
--                        it is told
--   output_dtype         what the module gives is cast to this type; it stays as it is
--   cast_forward_inputs  false: the floating tensors that the module is called with stay as they
--                        are; else they are cast to param_dtype
--
-- A policy is a module's and holds for all that is in it, but for modules with a policy of their
-- own.
local core, base, plan = ...
local fail = base.fail

local KEYS = {"param_dtype", "reduce_dtype", "output_dtype", "cast_forward_inputs"}
local TYPES = {"float32", "bfloat16"}

local policies = {}          -- of each module to which the plan gave one
base.policies = policies
local with_policy = {}       -- these modules, in the order in which it did

local function type_option(options, key, who)
  local name = options[key]
  if name == nil then return nil end
  for _, known in ipairs(TYPES) do
    if name == known then return name end
  end
  local hint = type(name) == "string" and core.suggestion(name, TYPES) or ""
  fail("%s's %s is %s, not %s%s", who, key, table.concat(TYPES, " or "), base.a(name), hint)
end

-- What a table of these keys says: mixed_precision's, and that of whatever else takes such a table.
function base.policy(options, who)
  base.expect(options, "table",
    'what ' .. who .. ' is told, as in {param_dtype = "bfloat16", reduce_dtype = "float32"},')
  base.options(options, who, KEYS)
  local used = type_option(options, "param_dtype", who)
  local reduced = type_option(options, "reduce_dtype", who)
  local inputs = options.cast_forward_inputs
  if inputs ~= nil then base.boolean(inputs, who .. "'s cast_forward_inputs") end
  return {
    used = used or "float32",
    reduced = reduced or used or "float32",
    inputs = inputs ~= false and used or nil,
    outputs = type_option(options, "output_dtype", who),
    line = core.line(),
  }
end

function base.set_policy(module, policy, who)
  if base.begun then fail("%s comes before train and infer", who) end
  if policies[module] then
    fail("%s: line %d has told the precision of this %s already", who, policies[module].line,
      base.class_name(module))
  end
  policies[module] = policy
  with_policy[#with_policy + 1] = module
end

function base.policy_of(module) return policies[module] end

-- Of a table of options those that tell a policy, or nil where there is none.
function base.policy_options(options)
  local own
  for _, key in ipairs(KEYS) do
    if options[key] ~= nil then
      own = own or {}
      own[key] = options[key]
    end
  end
  return own
end
base.policy_keys = KEYS

-- When the model is part of the graph, all of these modules are in it.
function base.check_policies()
  for _, module in ipairs(with_policy) do
    if not base.index(module) then
      fail("line %d tells the precision of a %s that is not part of the model",
        policies[module].line, base.class_name(module))
    end
  end
end

-- mixed_precision(model, {...}): the model.
function plan.mixed_precision(model, options)
  base.expect(model, "module", "the first argument of mixed_precision")
  base.set_policy(model, base.policy(options, "mixed_precision"), "mixed_precision")
  return model
end

-- The floating tensors among these as this type; with none told, as they are.
function base.as_type(name, ...)
  local all = table.pack(...)
  for i = 1, name and all.n or 0 do
    local v = all[i]
    if base.is_tensor(v) and base.is_floating(v) then all[i] = base.raw.to(v, name) end
  end
  return table.unpack(all, 1, all.n)
end

-- train's and infer's matmul_precision: whether products of float32 tensors may round what they take
-- to TF32, as torch.set_float32_matmul_precision("high") allows it there.
function base.is_tf32(options, who)
  local precision = options.matmul_precision
  if precision == nil or precision == "float32" then return false end
  if precision == "tf32" then return true end
  local meant = precision == "highest" and '; PyTorch\'s "highest" is float32'
    or precision == "high" and '; PyTorch\'s "high" is tf32'
    or precision == "medium" and '; bfloat16 is mixed_precision\'s' or ""
  fail('%s\'s matmul_precision is "float32" or "tf32", not %s%s', who, base.a(precision), meant)
end
