-- recurrent.lua: scan, a loop over a dimension that carries values from step to step.
local core, base = ...
local fail = base.fail
local F = base.F
local select_of, stack = F.select, F.stack -- whatever a plan does to F

local MOST_STEPS = 4096

-- f of a tensor, or of each in a table of them.
local function of_each(v, what, f)
  if base.is_tensor(v) then return f(v) end
  if base.kind(v) ~= "table" then
    fail("scan: %s must be a tensor or a table of tensors, not %s", what, base.a(v))
  end
  local made = {}
  for key, part in pairs(v) do
    if not base.is_tensor(part) then fail("scan: %s holds %s", what, base.a(part)) end
    made[key] = f(part)
  end
  return made
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
  if n == nil or n > MOST_STEPS then fail("scan: it takes 1 to %d steps, not %d", MOST_STEPS, n or 0) end
  return n
end

local function check_output(output, first, step)
  local same = base.is_tensor(output) == base.is_tensor(first) and (output == nil) == (first == nil)
  if not same then fail("scan: step %d gives another kind of output than the first", step) end
end

-- scan(f, carry, xs[, dim]): carry, output = f(carry, x) for each index of dimension dim (0) of xs,
-- in turn; returns the last carry, and the outputs stacked along dim. carry, xs and outputs are
-- tensors or tables of them. The program contains the steps one after the other.
function F.scan(f, carry, xs, dim)
  base.expect(f, "function", "what scan is given first")
  dim = dim == nil and 0 or dim
  local n, outputs = steps_of(xs, dim), {}
  for i = 0, n - 1 do
    local output
    carry, output = f(carry, of_each(xs, "what it goes over", function(x) return select_of(x, dim, i) end))
    check_output(output, i == 0 and output or outputs[1], i)
    outputs[i + 1] = output
  end
  if outputs[1] == nil then return carry end
  if base.is_tensor(outputs[1]) then return carry, stack(outputs, dim) end
  local stacked = {}
  for key in pairs(outputs[1]) do
    local list = {}
    for i, output in ipairs(outputs) do list[i] = output[key] end
    stacked[key] = stack(list, dim)
  end
  return carry, stacked
end
