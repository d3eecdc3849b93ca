-- settings.lua: the settings of a plan: -D gives them values, and tpgen PLAN --help lists them.
local core, base, plan = ...
local fail = base.fail

-- The types: a test, and the words of its message.
local function is_whole(v, least) return math.type(v) == "integer" and v >= least end
local TYPES = {
  size = {function(v) return is_whole(v, 1) end, "a whole number, 1 or more"},
  count = {function(v) return is_whole(v, 0) end, "a whole number, 0 or more"},
  whole = {function(v) return math.type(v) == "integer" end, "a whole number"},
  number = {function(v) return type(v) == "number" end, "a number"},
  flag = {function(v) return type(v) == "boolean" end, "true or false"},
  text = {function(v) return type(v) == "string" end, "a text"},
}

-- The type of a setting that names none, by its default.
local function type_of(value)
  if type(value) == "boolean" then return "flag" end
  if type(value) == "string" then return "text" end
  if math.type(value) == "integer" and value > 0 then return "size" end
  if math.type(value) == "float" then return "number" end
end

local KEYS = {true, true, true, type = true, choices = true, search = true, was = true}

-- What a searched setting is of the parallel plan: search = "tensor", or search = {kind = "tensor", ...}. Numbers of ranks
-- multiply to the devices (data is the product of copies and shards; experts are cut over ranks of data).
local KINDS = {"copies", "shards", "data", "tensor", "stages", "sequences", "experts", "ranks", "microbatches", "schedule",
  "stages_of_rank", "zero", "recompute", "choice"}
for _, kind in ipairs(KINDS) do KINDS[kind] = true end
-- The kinds of settings with these names where search = true.
local KIND_OF_NAME = {dp_replicate = "copies", dp_shard = "shards", dp = "data", tp = "tensor", pp = "stages", cp = "sequences",
  ep = "experts", microbatches = "microbatches", schedule = "schedule", zero = "zero", checkpoint = "recompute"}
local SEARCH_KEYS = {kind = true, with = true, without = true, divides = true}

-- "a", or {"a", "b"}: names of settings.
local function read_names(given, what)
  if given == nil then return "" end
  local list = type(given) == "string" and {given} or base.expect(given, "table", what)
  for _, name in ipairs(list) do base.expect(name, "string", what) end
  return table.concat(list, ",")
end

-- search = true, a kind, or {value, ..., kind =, with = NAMES, without = NAMES, divides = NAME}: the values that a search
-- tries beside the default, where the settings `with` are more than their defaults, and those `without` are not.
local function read_search(row, given, what)
  if given == nil or given == false then return nil end
  if given == true then given = {kind = KIND_OF_NAME[row.name] or #row.choices == 0 and row.type == "size" and "ranks" or nil} end
  if type(given) == "string" then given = {kind = given} end
  base.expect(given, "table", what .. " = true, a kind or a list of values:")
  for key in pairs(given) do
    if math.type(key) ~= "integer" and not SEARCH_KEYS[key] then
      fail("%s has no '%s': write {value, ..., kind =, with =, without =, divides =}", what, tostring(key))
    end
  end
  local kind = given.kind or "choice"
  if not KINDS[kind] then
    fail("%s has the kind '%.60s': the kinds are %s", what, tostring(kind), table.concat(KINDS, ", "))
  end
  local values = {}
  for i, value in ipairs(given) do values[i] = value end
  if #values == 0 and #row.choices > 0 then values = row.choices end
  if #values == 0 and row.type == "flag" then values = {true, false} end
  local names_them = kind == "choice" or kind == "zero" or kind == "recompute" or kind == "schedule" or kind == "stages_of_rank"
  if names_them and #values == 0 and not given.divides then
    fail("%s: list the values that a search tries: search = {1, 2}", what)
  end
  return {kind = kind, values = values, with = read_names(given.with, what), without = read_names(given.without, what),
    divides = read_names(given.divides, what)}
end

-- {"tp", 2, "the ranks that share the layers", search = "tensor"}
local function read_row(given, all)
  local name = base.expect(given[1], "string", "the name of a setting")
  local what = string.format("the setting '%.60s'", name)
  if not string.find(name, "^[%a_][%w_]*$") then fail("%s: a name has letters, digits and _", what) end
  if all[name] then fail("%s is declared twice", what) end
  for key in pairs(given) do
    if not KEYS[key] then
      fail("%s: it has no '%s': write {name, default, description, type =, choices =, search =, was =}", what, tostring(key))
    end
  end
  local row = {name = name, default = given[2], about = base.expect(given[3], "string", "the description of " .. what),
    choices = given.choices or {}, was = given.was}
  if row.was ~= nil then base.expect(row.was, "string", "the earlier name of " .. what) end
  base.expect(row.choices, "table", "the choices of " .. what)
  row.type = given.type or #row.choices == 0 and type_of(row.default) or nil
  if row.type and not TYPES[row.type] then
    fail("%s has the type '%s': the types are size, count, whole, number, flag and text", what, tostring(row.type))
  elseif not row.type and #row.choices == 0 then
    fail("%s: say its type: size, count, whole, number, flag or text", what)
  end
  row.search = read_search(row, given.search, "the search of " .. what)
  all[name], all[#all + 1] = row, row
end

-- Rows, and lists of rows, which may have a title.
local function read_rows(list, all, title)
  base.expect(list, "table", "what settings is given")
  if type(list[1]) == "string" then
    read_row(list, all)
    all[#all].title = title
    return
  end
  for _, row in ipairs(list) do read_rows(row, all, list.title or title) end
end

local function is_valid(row, value)
  for _, choice in ipairs(row.choices) do
    if value == choice then return true end
  end
  return row.type ~= nil and TYPES[row.type][1](value)
end

local function words_of(row)
  local words = {}
  for i, choice in ipairs(row.choices) do words[i] = tostring(choice) end
  if row.type then words[#words + 1] = TYPES[row.type][2] end
  if #words < 2 then return words[1] end
  return table.concat(words, ", ", 1, #words - 1) .. " or " .. words[#words]
end

-- The values of a search are values of the setting.
local function check_searched(row)
  for _, value in ipairs(row.search and row.search.values or {}) do
    if not is_valid(row, value) then
      fail("the search of the setting '%s' tries %s, and it must be %s", row.name, tostring(value), words_of(row))
    end
  end
end

local WHOLE = {size = true, count = true, whole = true}

-- given: what the command line says, as it is written there.
local function check(row, value, given)
  if WHOLE[row.type] and math.type(value) == "float" then value = math.tointeger(value) or value end
  if value ~= nil and not is_valid(row, value) then
    local too_large = WHOLE[row.type] and math.type(value) == "float" and math.abs(value) >= 2.0 ^ 63
    fail("%s must be %s%s, not %s", row.name, words_of(row), too_large and ", below 2^63" or "",
      type(value) == "string" and base.a(value) or type(value) == "table" and "a table" or given or tostring(value))
  end
  return value
end

local function type_words(row)
  local words = {}
  for i, choice in ipairs(row.choices) do words[i] = tostring(choice) end
  if row.type then words[#words + 1] = row.type end
  return table.concat(words, "|")
end

-- Adds the setting to those that tpgen lists, and that a search varies.
local function list_setting(row, usual)
  core.add_setting(row.name, type_words(row), usual == nil and "" or tostring(usual), row.about, row.title or "")
  local search = row.search
  if not search then return end
  local texts = {}
  for i, value in ipairs(search.values) do texts[i] = tostring(value) end
  core.add_search(search.kind, texts, search.with, search.without, search.divides)
end

-- For parallel_plan.lua, whose settings train has.
base.read_setting_rows, base.check_setting, base.list_setting = read_rows, check, list_setting

--- # Settings
--- settings(rows, known?): declares the plan's settings, `{name, default, what it does, type =, choices =, search =}`
--- each, or lists of these with a `title`; gives their values: what -D says, else what `known` says, else the
--- default. A default may be a function of the values. The types are size, count, whole, number, flag and text. `was` is an earlier name.
function plan.settings(rows, known)
  known = known or {}
  base.expect(known, "table", "the known values that settings is given")
  if base.begun then fail("settings comes before train and infer") end
  if base.has_settings then fail("a plan declares its settings once") end
  base.has_settings = true
  local all, values = {}, {}
  read_rows(rows, all)
  for _, row in ipairs(all) do check_searched(row) end
  local given = plan.args
  local function default_of(row)
    local value = known[row.name]
    if value == nil then value = row.default end
    if type(value) == "function" then value = value(values) end
    return check(row, value)
  end
  base.setting_names = {}
  local renamed = {}
  for i, row in ipairs(all) do
    base.setting_names[i] = row.name
    if row.was then renamed[row.was] = row.name end
  end
  setmetatable(values, {
    __index = function(_, name)
      local row = all[name]
      if not row then
        fail("the plan declares no setting '%s'%s", tostring(name), core.suggestion(tostring(name), base.setting_names))
      end
      local value = given[name]
      if value == nil then return default_of(row) end
      return check(row, value)
    end,
    __newindex = function() fail("settings have the values that the command line gives: a plan cannot change them") end,
    __metatable = false,
  })
  base.earlier_names = renamed
  core.check_definitions(base.setting_names, renamed, base.parallel_names) -- those of train's parallel: with_parallel
  for _, name in ipairs(base.pinned or {}) do
    if not all[name] then
      fail("pin: the plan has no setting '%s'%s", name, core.suggestion(name, base.setting_names))
    end
    check(all[name], base.pinned[name])
  end
  local said, written = core.definitions()
  for _, row in ipairs(all) do check(row, said[row.name], written[row.name]) end
  if core.lists_settings() then
    for _, row in ipairs(all) do
      list_setting(row, default_of(row))
    end
    core.end_of_settings()
  end
  for _, row in ipairs(core.shows_settings() and all or {}) do
    local value = values[row.name]
    core.show_setting(row.name, value == nil and "" or tostring(value), given[row.name] ~= nil)
  end
  return values
end

--- pin(values): `pin{tp = 2, dp_shard = 4}`, before all else in a plan: values of its settings, as if -D said them; -D has the
--- last word. `tpgen --search` writes one into the plan that it finds.
function plan.pin(values)
  base.expect(values, "table", "what pin is given")
  if base.has_settings or base.pinned then fail("pin comes once, before settings") end
  base.pinned = {}
  for name, value in pairs(values) do
    base.expect(name, "string", "the name of a setting in pin")
    if type(value) ~= "number" and type(value) ~= "string" and type(value) ~= "boolean" then
      fail("pin: %s must be a number, a text, true or false, not %s", name, base.a(value))
    end
    base.pinned[name] = value
    base.pinned[#base.pinned + 1] = name
    core.pin_setting(name, value)
  end
  table.sort(base.pinned)
end
