-- base.lua: functions that the other Lua files share: checks of arguments, and sorting.
--
-- Each of these files is called with the bindings (bindings.c), with the table that they share, and
-- with the plan's variables. An error is reported at the plan's line, wherever it is found.
local core, base, plan = ...

function base.fail(format, ...)
  error(string.format(format, ...), 0)
end
local fail = base.fail

-- ------------------------------------------------------------------------------- kinds of things

-- The kinds of the tables that these files make for the plan: "module", "mesh", "style" ... Their
-- contents are also kept in tables of the files: a plan cannot change or forge them.
local kinds = core.kinds

function base.make(kind, object)
  kinds[object] = kind
  return object
end

function base.kind(v)
  return v ~= nil and kinds[v] or core.kind(v)
end

-- "a number", "an optimizer", "the text 'wide'", "nothing"
function base.a(v)
  if v == nil then return "nothing" end
  if type(v) == "string" then return "the text '" .. string.sub(v, 1, 60) .. "'" end
  return base.a_kind(base.kind(v))
end

function base.a_kind(kind)
  local vowel = string.find(kind, "^[aeio]")
  return (vowel and "an " or "a ") .. kind
end

-- The result of tostring for a function: "Colwise", "mesh".
local named = {}

function base.named(name)
  if not named[name] then
    named[name] = {__tostring = function() return name end, __metatable = false}
  end
  return setmetatable({}, named[name])
end

-- -------------------------------------------------------------------------------------- checks

function base.expect(v, kind, what)
  if base.kind(v) ~= kind then
    fail("%s must be %s, not %s", what, base.a_kind(kind), base.a(v))
  end
  return v
end

-- The words for a value that is no whole number. One of 2^63 or more is shown with all its digits.
function base.not_whole(v)
  if not math.type(v) then return "a whole number, not " .. base.a(v) end
  if v ~= math.floor(v) or v - v ~= 0 then return "a whole number, not " .. tostring(v) end
  return string.format(math.abs(v) < 1e30 and "a whole number below 2^63, not %.0f" or "a whole number below 2^63, not %g", v)
end

function base.integer(v, what, least, most)
  if math.type(v) == "integer" and v >= least and v <= most then return v end
  local n = math.type(v) and math.tointeger(v)
  if not n then fail("%s must be %s", what, base.not_whole(v)) end
  if n < least or n > most then
    fail("%s must be at least %d and at most %d, not %d", what, least, most, n)
  end
  return n
end

function base.number(v, what, least, below)
  if type(v) ~= "number" then fail("%s must be a number, not %s", what, base.a(v)) end
  if not (v >= least and v < below) then
    local limit = below < math.huge and string.format(" and below %g", below) or ""
    fail("%s must be at least %g%s, not %s", what, least, limit,
      v == v and string.format("%g", v) or "nan")
  end
  return v + 0.0
end

function base.boolean(v, what)
  if type(v) ~= "boolean" then fail("%s must be true or false, not %s", what, base.a(v)) end
  return v
end

-- An error if one of the table's keys is not in `allowed`.
local function forbid_unknown(t, what, allowed)
  local known = {}
  for _, name in ipairs(allowed) do known[name] = true end
  for key in pairs(t) do
    if math.type(key) then fail("%s: every argument has a name, such as %s", what, allowed[1]) end
    if not known[key] then
      local hint = core.suggestion(key, allowed)
      if hint == "" then hint = "; it knows " .. table.concat(allowed, ", ") end
      fail("%s knows no '%s'%s", what, key, hint)
    end
  end
end

-- The named arguments of a function: a table with only keys in the list `allowed`.
function base.options(t, what, allowed)
  if t == nil then return {} end
  if type(t) ~= "table" or kinds[t] then
    base.expect(t, "table", "what " .. what .. " is given")
  end
  if not core.all_known(t, allowed) then forbid_unknown(t, what, allowed) end
  return t
end

-- The names of a function's named arguments, which the reference lists (reference.lua).
base.known_options = {}
function base.option_names(who, names)
  base.known_options[who] = names
  return names
end

-- The length of a list without other keys; `what` is its name in messages.
function base.length(list, what)
  local key = core.stray_key(list)
  if key ~= nil then fail("%s is a list: it has no '%s'", what, tostring(key)) end
  return rawlen(list)
end

-- The sizes in the unnamed part of a table; C reports errors in them.
function base.sizes(t, what)
  local sizes, n = {}, rawlen(t)
  if n > 8 then fail("%s: a tensor has at most 8 dimensions, not %d", what, n) end
  for i = 1, n do
    local size = rawget(t, i)
    sizes[i] = math.type(size) and math.tointeger(size) or size
  end
  return sizes
end

-- ------------------------------------------------------------------------------------- sorting

-- Lua's own table.sort may pick pivots by the clock, so that equal elements could come out in
-- another order each time. This one merges; equal elements keep their order.
local function merge(t, first, middle, last, less)
  local left = table.move(t, first, middle, 1, {})
  local i, j, n = 1, middle + 1, middle - first + 1
  for at = first, last do
    if i <= n and (j > last or not less(t[j], left[i])) then
      t[at], i = left[i], i + 1
    else
      t[at], j = t[j], j + 1
    end
  end
end

local function sort(t, first, last, less)
  if first >= last then return end
  local middle = (first + last) // 2
  sort(t, first, middle, less)
  sort(t, middle + 1, last, less)
  merge(t, first, middle, last, less)
end

function plan.table.sort(t, less)
  base.expect(t, "table", "what table.sort is given")
  sort(t, 1, #t, less or function(a, b) return a < b end)
end

-- ------------------------------------------------------------------------------------ the end

-- Called at the end of the plan.
function base.finish()
  if not base.begun then
    fail("the plan says neither train{...} nor infer{...}: there is nothing to compile")
  end
end
