-- operators.lua: operators that a plan declares: a rule, and the files of their kernels.
--
--   local swish = operator{
--     name = "swish", rule = "...->...", linear = "", kernel = "swish.c", kernel_cuda = "swish.cu",
--     backward = {swish_back},
--   }
--   y = swish(x)                      in forward; swish(x, {scalar = 0.5}) sets the kernel's scalar
--
-- The rule says how it shards (ops.h). backward: an operator for each input, or false for none. Its
-- inputs are the gradient of the first output, all inputs, then all outputs. The files are in or
-- below the plan's directory.
local core, base, plan = ...
local fail = base.fail

local LONGEST_RULE, LONGEST_NAME, LONGEST_PATH, MOST_INPUTS = 200, 40, 200, 8

local index_of = {}          -- of each operator, by the table that the plan holds

local function name_of(options)
  local name = base.expect(options.name, "string", "operator's name")
  if #name > LONGEST_NAME or not string.find(name, "^[a-z][a-z0-9_]*$") then
    fail("operator's name must be a word of at most %d small letters, digits and _, not '%.60s'",
      LONGEST_NAME, name)
  end
  return name
end

local function text_of(options, key, name, otherwise)
  if options[key] == nil and otherwise then return otherwise end
  local text = base.expect(options[key], "string", string.format("%s of the operator '%s'", key,
    name))
  if #text > LONGEST_RULE then
    fail("%s of the operator '%s' has more than %d letters", key, name, LONGEST_RULE)
  end
  return text
end

-- The path of a kernel's file, which cannot leave the plan's directory.
local function path_of(options, key, ending, name)
  local path = options[key]
  if path == nil then return nil end
  base.expect(path, "string", string.format("%s of the operator '%s'", key, name))
  local plain = #path <= LONGEST_PATH and string.find(path, "^[%w_][%w_./-]*$")
    and not string.find(path, "..", 1, true) and string.sub(path, -#ending) == ending
  if not plain then
    fail("%s of the operator '%s' must be a file beside the plan or below it, such as "
      .. "'kernels/%s%s', not '%.60s'", key, name, name, ending, path)
  end
  return path
end

-- The indices of the operators that make the gradients; -1 for none.
local function backward_of(options, name)
  local given, list = options.backward, {}
  if given == nil then return list end
  base.expect(given, "table", string.format("backward of the operator '%s'", name))
  for key in pairs(given) do
    base.integer(key, string.format("a key in backward of the operator '%s'", name), 1, MOST_INPUTS)
  end
  for i = MOST_INPUTS, 1, -1 do
    local o = rawget(given, i)
    local index = -1
    if o then index = index_of[base.expect(o, "operator", string.format(
      "backward[%d] of the operator '%s'", i, name))] end
    if index >= 0 or #list > 0 then table.insert(list, 1, index) end
  end
  return list
end

local function call_of(index, name)
  return core.named(name, function(...)
    local inputs, options = table.pack(...), {}
    local n = inputs.n
    if n > 0 and base.kind(inputs[n]) == "table" then
      options = base.options(inputs[n], name, {"scalar"})
      n = n - 1
    end
    local scalar = options.scalar == nil and 0 or options.scalar
    if type(scalar) ~= "number" or scalar - scalar ~= 0 then
      base.misfit("the scalar must be a finite number, not %s", base.a(scalar))
    end
    if n > MOST_INPUTS then base.misfit("it is given %d tensors; at most %d", n, MOST_INPUTS) end
    local tensors = {}
    for i = 1, n do tensors[i] = base.tensor(inputs[i], string.format("argument %d", i)) end
    return core.apply_operator(index, tensors, {scalar = scalar})
  end, false)
end

--- # Operators of your own
--- operator(options): an operator of your own, to be called in a forward.
---   name: of small letters, digits and _
---   rule: which dimension of each input is which of the output, as in gen/ir/ops.h
---   linear: the inputs in which it is linear
---   kernel: a file of C below the plan's folder
---   kernel_cuda: a file of CUDA
---   backward: a list of operators, one for each input, or false
local OPTIONS = base.option_names("operator", {"name", "rule", "linear", "kernel", "kernel_cuda", "backward"})

function plan.operator(options)
  base.expect(options, "table", "what operator is given")
  base.options(options, "operator", OPTIONS)
  local name = name_of(options)
  local rule, linear = text_of(options, "rule", name), text_of(options, "linear", name, "")
  local kernel = path_of(options, "kernel", ".c", name)
  local kernel_cuda = path_of(options, "kernel_cuda", ".cu", name)
  if not kernel and not kernel_cuda then
    fail("the operator '%s' needs kernel, a file of C, or kernel_cuda", name)
  end
  local index = core.declare_operator(name, rule, linear, kernel, kernel_cuda,
    backward_of(options, name))
  local call = call_of(index, name)
  local o = base.make("operator", setmetatable({}, {
    __call = function(_, ...) return call(...) end,
    __tostring = function() return name end,
    __metatable = false,
  }))
  index_of[o] = index
  return o
end
