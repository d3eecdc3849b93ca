-- updates.lua: the trace of an update: the computation of an optimizer's function of a parameter, its gradient
-- and its states. It is run on placeholders for these. An update that works by element becomes a kernel. A
-- function of more than one element (a norm, a mean, a product) becomes operations on tensors, before a kernel
-- that does the rest.
local core, base, plan = ...
local fail = base.fail

local MOST_STATES, MOST_NUMBERS, MOST_OPERATIONS = 4, 64, 256

-- ------------------------------------------------------------------------------------- the elements

-- A tensor of an update: {row =, inputs..., shape =, type =}, or {input = 0, 1, ..., shape =}: the
-- parameter, its gradient, the states. Of rows that are not pointwise also dims =, keep =, scalar =, equation =.
local elements = {}
local methods = {}
local trace -- of the update that runs: {steps =, by_shape =, whole =}

local meta = {__metatable = false, __tostring = function() return "an element of an update" end,
  __index = function(e, name)
    if name == "shape" then
      if trace then trace.by_shape = true end
      return {table.unpack(elements[e].shape)}
    end
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

-- Whether any input is on its owner rank only, or was; and whether all are: then their result is, too.
local function owners_of(inputs)
  local any, all = false, true
  for _, v in ipairs(inputs) do
    local d = elements[v]
    any = any or d ~= nil and d.was_owned
    all = all and (not d or d.owned)
  end
  return any, any and all
end

local function recorded(description)
  local was_owned, owned = owners_of(description.inputs)
  description.was_owned, description.owned = description.owned or was_owned, description.owned or owned
  if not trace then fail("an element of an update is used outside of it") end
  if #trace.steps == MOST_OPERATIONS then fail("an update has at most %d operations", MOST_OPERATIONS) end
  local e = element(description)
  trace.steps[#trace.steps + 1] = e
  return e
end

local function shape_text(shape) return "[" .. table.concat(shape, ", ") .. "]" end

local function count(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

local function same_shape(a, b)
  if #a ~= #b then return false end
  for i, size in ipairs(a) do
    if size ~= b[i] then return false end
  end
  return true
end

-- The shape of the two, aligned at the last dimension, where a size of 1 is broadcast.
local function broadcast(row, a, b)
  local shape = {}
  for i = 1, math.max(#a, #b) do
    local x, y = a[#a + 1 - i] or 1, b[#b + 1 - i] or 1
    if x ~= y and x ~= 1 and y ~= 1 then
      fail("%s: shapes %s and %s do not fit", row, shape_text(a), shape_text(b))
    end
    table.insert(shape, 1, x == 1 and y or x)
  end
  return shape
end

local function tensor_row(row, x, fields)
  fields.row, fields.inputs, trace.whole = row, {x}, true
  fields.shape, fields.type = fields.shape or elements[x].shape, fields.type or elements[x].type
  return recorded(fields)
end

local function cast(x, to)
  return elements[x].type == to and x or tensor_row("cast", x, {type = to})
end

local COMPARISONS = {eq = true, ne = true, lt = true, le = true, gt = true, ge = true, logical_and = true,
  logical_or = true, logical_not = true}

-- The type of what the inputs give: bfloat16 beside float32 is float32, unless that is a single number.
local function common_type(inputs)
  local wide, narrow
  for _, v in ipairs(inputs) do
    local d = elements[v]
    if d and d.type == "bfloat16" then narrow = true end
    if d and d.type == "float32" and #d.shape > 0 then wide = true end
  end
  return narrow and not wide and "bfloat16" or "float32"
end

local function operation(row, ...)
  local inputs, shape = {...}, {}
  for _, v in ipairs(inputs) do
    if not elements[v] and not base.is_scalar(v) and type(v) ~= "number" then
      fail("%s of an element takes elements and numbers, not %s", row, base.a(v))
    end
  end
  local kind = common_type(inputs)
  for i, v in ipairs(inputs) do
    if elements[v] then
      if elements[v].type ~= "bool" then inputs[i] = cast(v, kind) end
      shape = broadcast(row, shape, elements[v].shape)
    end
  end
  return recorded{row = row, inputs = inputs, shape = shape, pointwise = true,
    type = COMPARISONS[row] and "bool" or kind}
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
local of_rows = {}
for name, f in pairs(methods) do of_rows[name] = f end
--- # Tensors of an update
--- The values that an optimizer computes with: its parameter, gradient and states. They take `+ - * / ^`, these methods, and those of
--- pointwise operators: $pointwise.
--- p:sign(x): the sign, 0 for 0.
function methods.sign(x) return operation("abs_back", 1, x) end
--- p:clamp(x, least?, most?): bounds.
function methods.clamp(x, least, most)
  if least ~= nil then x = operation("maximum", x, least) end
  if most ~= nil then x = operation("minimum", x, most) end
  return x
end
--- p:where(x, condition, other): x where the condition is true.
methods.where = function(x, condition, other) return operation("where", condition, x, other) end
--- p:lerp(x, to, weight): `x + weight * (to - x)`.
function methods.lerp(x, to, weight) return x + weight * (to - x) end

-- ----------------------------------------------------------------------------- of more than one element

local function of_element(x, who)
  if not elements[x] then fail("%s of an update takes an element, not %s", who, base.a(x)) end
  return elements[x]
end

-- Dimensions from 0, negative ones from the end, as a set; nil: all.
local function dims_of(x, dim, who)
  local n, set = #elements[x].shape, {}
  if dim == nil then
    for d = 0, n - 1 do set[d] = true end
    return set
  end
  for _, d in ipairs(base.kind(dim) == "table" and dim or {dim}) do
    d = base.integer(d, who .. "'s dim", -n, n - 1)
    set[d < 0 and d + n or d] = true
  end
  return set
end

local function reduced(row, x, dim, keep, who)
  local d = of_element(x, who)
  local set, shape, mask, n = dims_of(x, dim, who), {}, 0, 1
  keep = keep ~= nil and base.boolean(keep, who .. "'s keepdim")
  for i, size in ipairs(d.shape) do
    if not set[i - 1] then
      shape[#shape + 1] = size
    else
      mask, n = mask | 1 << i - 1, n * size
      if keep then shape[#shape + 1] = 1 end
      if d.owned and not keep and i > 1 and not set[i - 2] then
        fail("%s on an owner rank, of the last dimension, keeps it: say keepdim, true", who)
      end
    end
  end
  return tensor_row(row, x, {shape = shape, dims = mask, keep = keep, scalar = who == "mean" and 1 / n or 1})
end

--- p:sum(x, dim?, keepdim?): the sum.
--- p:mean(x, dim?, keepdim?): the mean.
--- p:amax(x, dim?, keepdim?): the largest element.
--- p:amin(x, dim?, keepdim?): the smallest one.
for name, row in pairs{sum = "sum", mean = "sum", amax = "amax", amin = "amin"} do
  methods[name] = function(x, dim, keepdim) return reduced(row, x, dim, keepdim, name) end
end
--- p:norm(x, p?, dim?, keepdim?): the root of the sum of squares.
function methods.norm(x, p, dim, keepdim)
  if p ~= nil and p ~= 2 then fail("norm of an update is the root of the sum of squares: p is 2, not %s", tostring(p)) end
  return methods.sqrt(reduced("sum", operation("square", x), dim, keepdim, "norm"))
end

-- The operand's letters, `rows` and `columns`, and the tensor: of a transposed one that which it is made of. A stack
-- of matrices has a letter before these.
local function operand_of_product(x, rows, columns)
  local d = of_element(x, "matmul")
  local stack = #d.shape == 3 and "e" or ""
  if d.row ~= "permute" then return x, stack .. rows .. columns end
  return d.inputs[1], stack .. columns .. rows
end

local function need_matrices(d, who)
  if #d.shape ~= 2 and #d.shape ~= 3 then
    fail("%s of an update takes matrices or stacks of them, not the shape %s", who, shape_text(d.shape))
  end
end

--- p:matmul(x, y): the product of matrices, or of stacks of them.
function methods.matmul(x, y)
  local a, b = of_element(x, "matmul"), of_element(y, "matmul")
  need_matrices(a, "matmul")
  need_matrices(b, "matmul")
  local n, stacks = #a.shape, #a.shape == 3
  if n ~= #b.shape or a.shape[n] ~= b.shape[n - 1] or (stacks and a.shape[1] ~= b.shape[1]) then
    fail("matmul: shapes %s and %s do not fit", shape_text(a.shape), shape_text(b.shape))
  end
  local kind = common_type{x, y}
  local left, l = operand_of_product(cast(x, kind), "m", "k")
  local right, r = operand_of_product(cast(y, kind), "k", "n")
  trace.whole = true
  return recorded{row = "matmul", inputs = {left, right}, equation = l .. "," .. r .. (stacks and "->emn" or "->mn"),
    shape = stacks and {a.shape[1], a.shape[2], b.shape[3]} or {a.shape[1], b.shape[2]}, type = kind}
end
--- p:mm(x, y): as `matmul`.
methods.mm = methods.matmul

-- The last two dimensions, in the other order.
--- p:mT(x): transposed.
function methods.mT(x)
  local d = of_element(x, "mT")
  need_matrices(d, "mT")
  local n, shape = #d.shape, table.move(d.shape, 1, #d.shape, 1, {})
  shape[n - 1], shape[n] = d.shape[n], d.shape[n - 1]
  return tensor_row("permute", x, {equation = n == 3 and "eab->eba" or "ab->ba", shape = shape})
end

--- p:t(x): transposed, of a matrix.
function methods.t(x)
  local d = of_element(x, "t")
  if #d.shape ~= 2 then fail("t of an update takes a matrix, not the shape %s", shape_text(d.shape)) end
  return methods.mT(x)
end

--- p:to(x, type): `"float32"` or `"bfloat16"`.
function methods.to(x, type)
  of_element(x, "to")
  if type ~= "float32" and type ~= "bfloat16" then
    fail("to of an update takes \"float32\" or \"bfloat16\", not %s", base.a(type))
  end
  return cast(x, type)
end

-- The same, whole on every rank.
--- p:replicate(x): whole on every rank.
function methods.replicate(x)
  if of_element(x, "replicate").owned then fail("replicate of an update takes what is not on its owner rank only") end
  return tensor_row("redistribute", x, {})
end

-- The same, a matrix, whole on one rank: those of equal modules on different ones. Values that depend only on it are
-- on its rank, too.
--- p:to_owner(x): a matrix, whole on one rank, its owner, which then computes with it; those of equal modules have
--- different owners.
function methods.to_owner(x)
  local d = of_element(x, "to_owner")
  if #d.shape ~= 2 then fail("to_owner of an update takes a matrix, not the shape %s", shape_text(d.shape)) end
  if d.was_owned then fail("to_owner of an update takes what was not on an owner rank before") end
  return tensor_row("scan_stack", x, {owned = true})
end
--- p:home(x): `to_owner` by its earlier name.
methods.home = methods.to_owner

-- A value on its owner rank, cut as the parameter again. This happens by itself where it meets a value that is not.
--- p:cut(x): cut as the parameter again.
function methods.cut(x)
  if not of_element(x, "cut").owned then fail("cut of an update takes what is on its owner rank") end
  local e = tensor_row("scan_take", x, {})
  elements[e].owned = false
  return e
end

--- p:dim(x): the number of dimensions.
function methods.dim(x) return #x.shape end
--- p:numel(x): the number of elements.
function methods.numel(x) return count(x.shape) end
--- p:size(x, d): a size.
function methods.size(x, d)
  local shape = x.shape
  d = base.integer(d, "size's dim", -#shape, #shape - 1)
  return shape[(d < 0 and d + #shape or d) + 1]
end
base.methods_of_updates = {} -- those that are no row's, for the reference
for name, f in pairs(methods) do
  base.element_methods[#base.element_methods + 1] = name
  if of_rows[name] ~= f then base.methods_of_updates[name] = f end
end

-- -------------------------------------------------------------------------------------- the update

local function is_identifier(name)
  return type(name) == "string" and string.find(name, "^[a-z][a-z0-9_]*$") ~= nil and #name < 64
end
base.is_identifier = is_identifier

-- Names that the kernel of an update has itself: emit/update_text.c.
local OF_KERNEL = {i = true, e = true, now = true, norm = true, clip = true, factor = true}

-- The numbers of an update, in the order of their first use: constants and those of the step.
local function number_of(traced, v)
  local key = base.is_scalar(v) and base.scalar_text(v) or v + 0.0
  if traced.number[key] then return traced.number[key] end
  local entry = {value = key}
  if type(key) == "string" then
    local preferred = traced.names[key] or key == "$lr$" and "rate" or "scale"
    local name, again = preferred, 1
    while OF_KERNEL[name] or traced.given[name] do again = again + 1; name = preferred .. "_" .. again end
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

-- The shape of a state: the parameter's, with a size of 1 where it has none of its own; and which these are.
local function ones_of(who, name, given, shape)
  base.expect(given, "table", string.format("the shape of %s's state %s", who, name))
  local mask, fits = 0, #given == #shape
  for i, size in ipairs(shape) do
    if given[i] == 1 and size ~= 1 then mask = mask | 1 << i - 1 end
    fits = fits and (given[i] == 1 or given[i] == size)
  end
  if not fits then
    fail("%s: the state %s must have the parameter's shape, %s, or a size of 1 in some of its dimensions", who,
      name, shape_text(shape))
  end
  return mask
end

-- The states of a parameter of that shape: their names, and by name the dimensions in which they have size 1.
local function states_of(definition, settings, shape)
  local states, list, ones = definition.state, {}, {}
  if type(states) == "function" then
    states = states(settings, setmetatable({}, {__metatable = false, __len = function() return #shape end,
      __index = function(_, i) trace.by_shape = true; return shape[i] end}))
  end
  base.expect(states, "table", definition.name .. "'s state")
  for i, state in ipairs(states) do
    local name, own = state, nil
    if base.kind(state) == "table" then name, own = state[1], state[2] end
    if not is_identifier(name) then
      fail("%s's state is a list of names of small letters; one is %s", definition.name, base.a(name))
    end
    list[i], ones[name] = name, own and ones_of(definition.name, name, own, shape) or 0
    if own then trace.by_shape = true end
  end
  return list, ones
end

local function shape_without(shape, ones)
  local own = {}
  for i, size in ipairs(shape) do own[i] = ones >> i - 1 & 1 == 1 and 1 or size end
  return own
end

-- The result of a function for the parameter or a state, as an element of that shape in float32.
local function result(e, like, what)
  if type(e) == "number" or base.is_scalar(e) then e = operation("add", operation("mul", like, 0), e) end
  e = cast(base.expect(e, "element", what), "float32")
  if not same_shape(broadcast("an update", elements[e].shape, elements[like].shape), elements[like].shape) then
    fail("%s has the shape %s, not %s", what, shape_text(elements[e].shape), shape_text(elements[like].shape))
  end
  if same_shape(elements[e].shape, elements[like].shape) then return e end
  return operation("add", operation("mul", like, 0), e)
end

-- Traces the update with the steps around it: clipping by value before it, the moving average after
-- it. Returns the new parameter and the new states.
local function run_update(made, way, traced, states, ones, shape)
  local definition, settings = made.definition, made.settings
  local function input(i, own) return element{input = i, shape = own, type = "float32"} end
  local p, g, state = input(0, shape), input(1, shape), {}
  for i, name in ipairs(states) do
    state[name] = input(1 + i, shape_without(shape, ones[name]))
  end
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
  new_p = result(new_p, p, definition.name .. "'s new parameter")
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
    local like = ones[name] == 0 and p or state[name]
    out[i + 1] = result(e, like, definition.name .. "'s new " .. name)
  end
  return out
end

-- ------------------------------------------------------------------------ operations, and a kernel after them

-- Which steps are operations, and which are of the kernel. The kernel goes over the elements of the parameter,
-- and reads single numbers. It has the steps after the last operations. A step by element, on values that the
-- kernel reads anyway, may be both: computed twice it takes no memory.
local function parts_of(out, ones, states, shape)
  local cheap, taken = {}, {}
  local function is_cheap(e)
    local d = elements[e]
    if d.input or cheap[e] ~= nil then return d.input and same_shape(d.shape, shape) or cheap[e] end
    local is = d.pointwise and same_shape(d.shape, shape) and not d.owned
    for _, v in ipairs(d.inputs) do
      if elements[v] then is = is and (is_cheap(v) or count(elements[v].shape) == 1 and elements[v].type == "float32") end
    end
    cheap[e] = is or false
    return cheap[e]
  end
  -- From the last step on: whether operations take it, and whether it is of the kernel.
  local operations, kernel = {}, {}
  local function take(e, by_kernel)
    if elements[e].input then return end
    taken[e] = taken[e] or {}
    taken[e][by_kernel and "kernel" or "operation"] = true
  end
  local function may_be_of_kernel(d)
    local is = d.pointwise and same_shape(d.shape, shape) and not d.owned
    for _, v in ipairs(d.inputs) do
      local from = elements[v]
      is = is and (not from or same_shape(from.shape, shape) or count(from.shape) == 1)
      is = is and (not from or from.type == "float32" or from.type == "bool" and is_cheap(v))
    end
    return is
  end
  for i, e in ipairs(out) do take(e, i == 1 or ones[states[i - 1]] == 0) end
  for i = #trace.steps, 1, -1 do
    local e = trace.steps[i]
    local by, d = taken[e], elements[e]
    if by then
      local is = by.kernel and may_be_of_kernel(d) and (is_cheap(e) or not by.operation)
      kernel[e] = is or nil
      operations[e] = (by.operation or not is) or nil
      for _, v in ipairs(d.inputs) do
        if elements[v] and kernel[e] then take(v, true) end
        if elements[v] and operations[e] then take(v, false) end
      end
    end
  end
  return operations, kernel
end

local function step_text(d)
  return {row = d.row, dims = d.dims or 0, keep = d.keep or false, scalar = d.scalar or 0, equation = d.equation,
    type = d.row == "cast" and d.type or nil}
end

-- A traced update as set_optimizers takes it: its numbers, operations, steps and outs by operand numbers.
local function as_lists(traced, out, states, ones, shape)
  local all = {}
  for _, e in ipairs(trace.steps) do all[e] = true end
  local operations, kernel = {}, all
  if trace.whole then operations, kernel = parts_of(out, ones, states, shape) end
  local order = {}
  for _, of in ipairs{operations, kernel} do
    for _, e in ipairs(trace.steps) do
      if of[e] then order[#order + 1] = {e = e, of = of} end
    end
  end
  for _, step in ipairs(order) do
    for _, v in ipairs(elements[step.e].inputs) do
      if not elements[v] then number_of(traced, v) end
    end
  end
  local first_number, list, place = 2 + #states, {}, {[operations] = {}, [kernel] = {}}
  local first_step, noperation = first_number + #traced.numbers, 0
  local function operand(v, of)
    if not elements[v] then return first_number + number_of(traced, v) end
    return elements[v].input or place[of][v] or place[operations][v] or fail("an element of another update is used")
  end
  for i, step in ipairs(order) do
    list[i] = step_text(elements[step.e])
    for k, v in ipairs(elements[step.e].inputs) do list[i][k] = operand(v, step.of) end
    place[step.of][step.e] = first_step + i - 1
    if step.of == operations then noperation = i end
  end
  local outs, masks = {}, {}
  for i, e in ipairs(out) do outs[i] = operand(e, kernel) end
  for i, name in ipairs(states) do masks[i] = ones[name] end
  return {numbers = traced.numbers, steps = list, operations = noperation, out = outs, ones = masks}
end

-- The optimizer of a group's parameters of one shape as set_optimizers takes it; and whether another shape
-- may give another one. way: {clip_value =, ema =, rate =, schedule =, match =}
function base.traced_optimizer(made, way, shape)
  trace = {steps = {}}
  local states, ones = states_of(made.definition, made.settings, shape)
  if way.ema then states[#states + 1], ones.ema = "ema", 0 end
  if #states > MOST_STATES then fail("%s: a parameter has at most %d states", made.definition.name, MOST_STATES) end
  local traced = {numbers = {}, number = {}, names = {}, given = {}}
  local out = run_update(made, way, traced, states, ones, shape)
  local o = as_lists(traced, out, states, ones, shape)
  local by_shape = trace.by_shape or trace.whole or false
  trace = nil
  local settings = base.settings_text(made.settings)
  if way.clip_value then settings = settings .. ", gradients clipped to " .. base.scalar_text(way.clip_value) end
  if way.ema then settings = settings .. ", moving average " .. base.scalar_text(way.ema) end
  o.name, o.settings, o.match, o.rate = made.definition.name, settings, way.match, way.rate
  o.by_part = made.definition.by_part
  o.schedule, o.line, o.states = way.schedule, made.line, states
  return o, by_shape
end
