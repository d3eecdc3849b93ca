-- precision.lua: mixed_precision: a model computes in a narrower type than that of its parameters.
--
--   model = mixed_precision(model, {param_dtype = "bfloat16", reduce_dtype = "float32"})
--
-- The names and their meaning are those of torch.distributed.fsdp.MixedPrecisionPolicy:
--
--   param_dtype          a forward uses each parameter cast to this type; the parameter, its gradient
--                        and the optimizer's state stay float32
--   reduce_dtype         the type in which gradients of parameters are reduced over ranks; by default
--                        param_dtype
--   output_dtype         the module's output is cast to this type; by default it is not cast
--   cast_forward_inputs  false: floating inputs of the module stay as they are; else they are cast
--                        to param_dtype
--
-- A policy is for a module and everything in it, except for modules with a policy of their own.
local core, base, plan = ...
local fail = base.fail

local KEYS = base.option_names("mixed_precision", {"param_dtype", "reduce_dtype", "output_dtype", "cast_forward_inputs"})
local TYPES = {"float32", "bfloat16"}

local policies = {}          -- of each module to which the plan gave one
base.policies = policies
local with_policy = {}       -- these modules, in the order of the plan

local function type_option(options, key, who)
  local name = options[key]
  if name == nil then return nil end
  for _, known in ipairs(TYPES) do
    if name == known then return name end
  end
  local hint = type(name) == "string" and core.suggestion(name, TYPES) or ""
  fail("%s's %s is %s, not %s%s", who, key, table.concat(TYPES, " or "), base.a(name), hint)
end

-- The policy that a table of these keys states: mixed_precision's, or another function's options.
function base.policy(options, who)
  base.expect(options, "table",
    'the argument of ' .. who .. ', as in {param_dtype = "bfloat16", reduce_dtype = "float32"},')
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
    fail("%s: line %d has set the precision of this %s already", who, policies[module].line,
      base.class_name(module))
  end
  policies[module] = policy
  with_policy[#with_policy + 1] = module
end

function base.policy_of(module) return policies[module] end

-- Those of a table of options that state a policy, or nil if there are none.
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

-- Called when the model is part of the graph: an error if one of these modules is not in it.
function base.check_policies()
  for _, module in ipairs(with_policy) do
    if not base.index(module) then
      fail("line %d sets the precision of a %s that is not part of the model",
        policies[module].line, base.class_name(module))
    end
  end
end

--- # Precision
--- mixed_precision(model, options): the types in which a model computes. Gives the model.
---   param_dtype: a forward uses each parameter in this type; the parameter itself is float32
---   reduce_dtype: gradients of parameters are reduced in it; by default param_dtype
---   output_dtype: of the module's output
---   cast_forward_inputs = true: inputs are cast to param_dtype
function plan.mixed_precision(model, options)
  base.expect(model, "module", "the first argument of mixed_precision")
  base.set_policy(model, base.policy(options, "mixed_precision"), "mixed_precision")
  return model
end

-- By module: how its products are rounded to float8; the number of the operator matmul. And whether any are.
base.float8_of, base.has_float8 = {}, false
local RECIPES = {tensorwise = 1, rowwise = 2}
local FLOAT8_KEYS = base.option_names("float8", {"recipe", "skip"})

--- float8(model, options?): the products of Linear modules in the model, and those of their gradients, take float8 with
--- scales from the largest magnitudes of the moment, as torchao's convert_to_float8_training. Sizes are multiples of 16.
--- A Linear with an adapter, or with a forward of its own, stays as it is. Gives the model.
---   recipe = "tensorwise": a scale for each tensor, E4M3, and E5M2 for gradients; or `"rowwise"`: a scale for each row of
---     terms, a power of 2, E4M3
---   skip: a pattern of modules that stay as they are, or a list
function plan.float8(model, options)
  base.expect(model, "module", "the first argument of float8")
  options = base.options(options, "float8", FLOAT8_KEYS)
  if base.begun then fail("float8 comes before train and infer") end
  local recipe = options.recipe == nil and "tensorwise" or options.recipe
  if not RECIPES[recipe] then fail('float8\'s recipe is "tensorwise" or "rowwise", not %s', base.a(recipe)) end
  local skips = options.skip ~= nil and base.named_by(model, base.patterns(options.skip, "float8's skip")) or {}
  local any = false
  base.each_module(model, function(module)
    if base.class(module) ~= base.Linear or skips[module] or base.has_adapter(module) then return end
    any = true
    if module.in_features == nil then
      fail("float8: the Linear of line %d is a module of an archive, whose graph does not call it: float8 is for modules of a plan",
        base.line_of(module))
    end
    for _, size in ipairs{module.in_features, module.out_features} do
      if size % 16 ~= 0 then
        fail("float8: the Linear of line %d is %d x %d: its sizes must be multiples of 16; skip leaves it as it is",
          base.line_of(module), module.out_features, module.in_features)
      end
    end
    base.float8_of[module], base.has_float8 = RECIPES[recipe], true
  end)
  if not any then
    fail("float8: this %s has no Linear that it could convert: other layers compute in their own type", base.class_name(model))
  end
  return model
end

-- The floating tensors among these, cast to the type; without a type, unchanged.
function base.as_type(name, ...)
  local all = table.pack(...)
  for i = 1, name and all.n or 0 do
    local v = all[i]
    if base.is_tensor(v) and base.is_floating(v) then all[i] = base.raw.to(v, name) end
  end
  return table.unpack(all, 1, all.n)
end

-- matmul_precision of train and infer: whether products of float32 tensors may round their operands
-- to TF32, as torch.set_float32_matmul_precision("high") does.
function base.is_tf32(options, who)
  local precision = options.matmul_precision
  if precision == nil or precision == "float32" then return false end
  if precision == "tf32" then return true end
  local meant = precision == "highest" and '; PyTorch\'s "highest" is float32'
    or precision == "high" and '; PyTorch\'s "high" is tf32'
    or precision == "medium" and '; bfloat16 is mixed_precision\'s' or ""
  fail('%s\'s matmul_precision is "float32" or "tf32", not %s%s', who, base.a(precision), meant)
end
