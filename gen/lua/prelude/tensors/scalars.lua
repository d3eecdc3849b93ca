-- scalars.lua: numbers that depend on the step: the learning rate, and the numbers that optimizers
-- compute from it.
--
-- A scalar is the number of the step, t, the learning rate, or a result of + - * / ^ % and the
-- functions of math make of them. Its text is an expression in C, which the host computes once a step.
local core, base, plan = ...
local fail = base.fail

local MOST_PATHS = 64

-- By scalar: {text =, tight = how tightly its outermost sign binds, whole = it is an int in C}.
local nodes = {}
local meta = {__metatable = false, __tostring = function() return "a number of the step" end}

base.scalar_meta = meta

local function node(text, tight, whole)
  local s = base.make("scalar", setmetatable({}, meta))
  nodes[s] = {text = text, tight = tight, whole = whole}
  return s
end

local ATOM, FACTOR, TERM = 3, 2, 1
local step, rate = node("t", ATOM, true), node("$lr$", ATOM)
base.scalar_step, base.scalar_rate = step, rate

function base.is_scalar(v)
  return nodes[v] ~= nil
end

-- The text and the binding of an operand. Beside an int, a number is written as a double.
local function operand(v, as_double)
  if nodes[v] then return nodes[v].text, nodes[v].tight end
  if type(v) ~= "number" then fail("a number of the step cannot be computed with %s", base.a(v)) end
  if v ~= v or v == math.huge or v == -math.huge then
    fail("a number of the step is computed with %s", v ~= v and "nan" or "infinity")
  end
  local text = core.double_text(v)
  if as_double and not string.find(text, "[.e]") then text = text .. ".0" end
  return text, v < 0 and TERM or ATOM
end

local function bracketed(text, tight, least)
  return tight < least and "(" .. text .. ")" or text
end

local function is_whole(v)
  return nodes[v] and nodes[v].whole
end

local function binary(sign, tight, a, b)
  local whole = sign == "-" and is_whole(a) and math.type(b) == "integer" and b >= 0 and b < 1 << 30
  local left, left_tight = operand(a, is_whole(b))
  local right, right_tight = operand(b, is_whole(a) and not whole)
  if is_whole(a) and is_whole(b) then left, left_tight = "(double)" .. bracketed(left, left_tight, ATOM), ATOM end
  return node(bracketed(left, left_tight, tight) .. " " .. sign .. " "
    .. bracketed(right, right_tight, tight + 1), tight, whole)
end

local function call(name, ...)
  local texts = {}
  for i, v in ipairs({...}) do texts[i] = (operand(v)) end
  return node(name .. "(" .. table.concat(texts, ", ") .. ")", ATOM)
end

function meta.__add(a, b)
  if a == 0 then return b elseif b == 0 then return a end
  return binary("+", TERM, a, b)
end

function meta.__sub(a, b)
  if b == 0 then return a end
  return binary("-", TERM, a, b)
end

function meta.__mul(a, b)
  if a == 0 or b == 0 then return 0 elseif a == 1 then return b elseif b == 1 then return a end
  return binary("*", FACTOR, a, b)
end

function meta.__div(a, b)
  if b == 1 then return a end
  return binary("/", FACTOR, a, b)
end

function meta.__unm(a) return binary("-", TERM, 0, a) end
function meta.__pow(a, b) return call("pow", a, b) end

-- The functions of math, for scalars too.
local functions = {sqrt = "sqrt", exp = "exp", cos = "cos", sin = "sin", floor = "floor",
  ceil = "ceil", abs = "fabs"}
for name, in_c in pairs(functions) do
  local of_numbers = plan.math[name]
  plan.math[name] = function(x)
    if nodes[x] then return call(in_c, x) end
    return of_numbers(x)
  end
end
local log = plan.math.log
function plan.math.log(x, of)
  if not nodes[x] then return of == nil and log(x) or log(x, of) end
  return of == nil and call("log", x) or call("log", x) / log(of)
end
for name, in_c in pairs({min = "fmin", max = "fmax"}) do
  local of_numbers = plan.math[name]
  plan.math[name] = function(...)
    local result, any = (...), false
    for _, v in ipairs({...}) do any = any or nodes[v] ~= nil end
    if not any then return of_numbers(...) end
    for i = 2, select("#", ...) do result = call(in_c, result, (select(i, ...))) end
    return result
  end
end

-- For our own files: a plan may change its math.
base.math = {pi = math.pi, sqrt = plan.math.sqrt, cos = plan.math.cos, max = plan.math.max, min = plan.math.min}
local floor = plan.math.floor
function meta.__mod(a, b) return a - floor(a / b) * b end
function meta.__idiv(a, b) return floor(a / b) end

-- ------------------------------------------------------------------------------ functions of the step

-- A comparison is answered from a list; each further one is answered "true" and noted. So each path
-- of a function is run, one after the other.
local answers, asked

local SWAPPED = {["<"] = ">", ["<="] = ">=", ["=="] = "=="}

local function compare(sign, a, b)
  if not asked then
    fail("a number of the step is compared: that works only in a function of the step, such as a "
      .. "schedule or at_step(function(t) ... end)")
  end
  local left, left_tight = operand(a)
  local right, right_tight = operand(b)
  if type(a) == "number" then left, left_tight, right, right_tight, sign = right, right_tight, left, left_tight, SWAPPED[sign] end
  local question = bracketed(left, left_tight, TERM) .. " " .. sign .. " " .. bracketed(right, right_tight, TERM)
  asked[#asked + 1] = question
  if #asked > MOST_PATHS then fail("a function of the step compares more than %d times", MOST_PATHS) end
  if answers[#asked] == nil then return true end
  return answers[#asked]
end

function meta.__lt(a, b) return compare("<", a, b) end
function meta.__le(a, b) return compare("<=", a, b) end
function meta.__eq(a, b) return compare("==", a, b) end

local function expect_number(v, what)
  if type(v) ~= "number" and not nodes[v] then fail("%s must be a number, not %s", what, base.a(v)) end
  return v
end
base.expect_number = expect_number

-- The scalar that f(...) gives at every step: a choice between the results of its paths.
function base.scalar_of(f, what, ...)
  local paths = 0
  local outer_answers, outer_asked = answers, asked
  local function explore(prefix, ...)
    answers, asked = prefix, {}
    local result, questions = expect_number(f(...), what), asked
    if #questions <= #prefix then
      paths = paths + 1
      if paths > MOST_PATHS then fail("%s: its function has more than %d paths", what, MOST_PATHS) end
      return result
    end
    local yes, no = {}, {}
    for i, answer in ipairs(prefix) do yes[i], no[i] = answer, answer end
    yes[#prefix + 1], no[#prefix + 1] = true, false
    local a, b = explore(yes, ...), explore(no, ...)
    local text = questions[#prefix + 1] .. " ? " .. bracketed(operand(a), nodes[a] and nodes[a].tight or 3, 1)
      .. " : " .. (operand(b))
    return node(text, 0)
  end
  local result = explore({}, ...)
  answers, asked = outer_answers, outer_asked
  return result
end

-- The text of a number or a scalar.
function base.scalar_text(v)
  return (operand(v))
end
