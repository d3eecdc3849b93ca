-- recurrent.lua: scan, a loop over a dimension that carries values from step to step.
local core, base = ...
local fail, append = base.fail, core.append
local F = base.F
local select_of, stack, permuted = F.select, F.stack, base.permuted -- whatever a plan does to F

local MOST_STEPS = 65536   -- of a loop
local MOST_UNROLLED = 4096 -- of a program that contains them all

-- f of a tensor, or of each in a table of them, with its key.
local function of_each(v, what, f)
  if base.is_tensor(v) then return f(v) end
  if base.kind(v) ~= "table" then
    fail("scan: %s must be a tensor or a table of tensors, not %s", what, base.a(v))
  end
  local made = {}
  for key, part in pairs(v) do
    if not base.is_tensor(part) then fail("scan: %s holds %s", what, base.a(part)) end
    made[key] = f(part, key)
  end
  return made
end

local function at(v, key)
  if key == nil then return v end
  return v[key]
end

-- The number of steps: the size of dimension dim, equal in all of xs.
local function steps_of(xs, dim)
  local n
  of_each(xs, "what it goes over", function(x)
    local shape = core.shape(x)
    if math.type(dim) ~= "integer" or dim < -#shape or dim >= #shape then
      fail("scan: a tensor of shape %s has no dimension %s", base.shape_text(shape), tostring(dim))
    end
    local size = shape[(dim < 0 and dim + #shape or dim) + 1]
    if n and n ~= size then fail("scan: dimension %d has %d elements, and %d elsewhere", dim, n, size) end
    n = size
  end)
  return n or 0
end

local function check_steps(n, most)
  if n < 1 or n > most then fail("scan: it takes 1 to %d steps, not %d", most, n) end
end

local function check_output(output, first, step)
  local same = base.is_tensor(output) == base.is_tensor(first) and (output == nil) == (first == nil)
  if not same then fail("scan: step %d gives another kind of output than the first", step) end
end

-- The steps one after the other.
local function unrolled(f, carry, xs, dim, n)
  local outputs = {}
  for i = 0, n - 1 do
    local output
    carry, output = f(carry, of_each(xs, "what it goes over", function(x) return select_of(x, dim, i) end))
    check_output(output, i == 0 and output or outputs[1], i)
    outputs[i + 1] = output
  end
  if outputs[1] == nil then return carry end
  return carry, of_each(outputs[1], "the output", function(_, key)
    local list = {}
    for i, output in ipairs(outputs) do list[i] = at(output, key) end
    return stack(list, dim)
  end)
end

-- The tensor with dimension `from` at place `to`.
local function moved(x, from, to)
  if from == to then return x end
  local order = {}
  for d = 0, #core.shape(x) - 1 do
    if d ~= from then order[#order + 1] = d end
  end
  table.insert(order, to + 1, from)
  return permuted(x, order)
end

local function counted_from_start(dim, ndim) return dim < 0 and dim + ndim or dim end

-- The carry of a step must have the type and the shape of the carry before it.
local function check_carry(given, got)
  if base.is_tensor(given) ~= base.is_tensor(got) then
    fail("scan: what is carried is %s, and a step hands on %s", base.a(given), base.a(got))
  end
  of_each(got, "what is carried", function(new, key)
    local old = at(given, key)
    if not base.is_tensor(old) then fail("scan: a step hands on '%s', which it was not given", tostring(key)) end
    if not base.same_shape(core.shape(old), core.shape(new)) or core.type(old) ~= core.type(new) then
      fail("scan: what is carried is of shape %s and type %s, and a step hands on shape %s and type %s",
        base.shape_text(core.shape(old)), core.type(old), base.shape_text(core.shape(new)), core.type(new))
    end
  end)
  of_each(given, "what is carried", function(_, key)
    if not base.is_tensor(at(got, key)) then fail("scan: a step does not hand on '%s'", tostring(key)) end
  end)
end

-- A loop: the program contains the operations of the first steps and of the last one (scans.c).
local function looped(f, carry, xs, dim, n)
  local steps, outputs = math.min(n, 3), {}
  local slices = of_each(xs, "what it goes over", function(x)
    return moved(x, counted_from_start(dim, #core.shape(x)), 0)
  end)
  local first = of_each(carry, "what is carried", core.enter_scan)
  local given = first
  core.begin_scan(n)
  local dropouts
  for i = 1, steps do
    dropouts = base.count_dropouts(0)
    core.begin_step(i - 1)
    local got, output = f(given, of_each(slices, "what it goes over", function(x)
      return append("scan_take", {x}, {dims = {0}})
    end))
    check_carry(given, got)
    check_output(output, i == 1 and output or outputs[1], i - 1)
    if output ~= nil then
      outputs[i] = of_each(output, "the output", function(y) return append("scan_put", {y}, {}) end)
    end
    given = of_each(got, "what is carried", core.pass_on)
    core.end_step()
  end
  core.end_scan()
  base.count_dropouts((base.count_dropouts(0) - dropouts) * (n - steps))
  of_each(given, "what is carried", function(last, key) core.hold(last, at(first, key)) end)
  if outputs[1] == nil then return given end
  return given, of_each(outputs[1], "the output", function(y, key)
    local list = {}
    for i, output in ipairs(outputs) do list[i] = at(output, key) end
    local whole = append("scan_stack", list, {dims = {0}, sizes = {D = n}})
    return moved(whole, 0, counted_from_start(dim, #core.shape(y) + 1))
  end)
end

-- scan(f, carry, xs[, dim[, unroll]]): carry, output = f(carry, x) for each index of dimension dim
-- (0) of xs, in turn; returns the last carry, and the outputs stacked along dim. carry, xs and
-- outputs are tensors or tables of them. It is a loop in the program; with unroll, or in another
-- scan, the program contains the steps one after the other.
--- # Loops
--- F.scan(f, carry, xs, dim = 0, unroll = false): `carry, output = f(carry, x)` for each index of a dimension of
--- `xs`; the last carry, and the outputs stacked. All are tensors or tables of them. It is a loop in the program;
--- with `unroll` the steps stand one after the other.
function base.scan(f, carry, xs, dim, unroll)
  base.expect(f, "function", "what scan is given first")
  dim = dim == nil and 0 or dim
  local n = steps_of(xs, dim)
  unroll = unroll ~= nil and base.boolean(unroll, "scan's unroll") or n == 1 or core.in_scan()
  check_steps(n, unroll and MOST_UNROLLED or MOST_STEPS)
  return (unroll and unrolled or looped)(f, carry, xs, dim, n)
end
F.scan = base.scan
