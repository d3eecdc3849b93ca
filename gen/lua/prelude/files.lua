-- files.lua: the files that a plan may read or require, and the names of its parameters in foreign files.
local core, base, plan = ...
local fail = base.fail

-- read_json(path, null): the file's content, with `null`, or else nothing, for what is null. The path is one that the command line names, as in -D
-- config=FILE, or that of a file in or below the plan's directory. Must come before train and
-- infer.
function plan.read_json(path, null)
  base.expect(path, "string", "the path that read_json is given")
  if base.begun then fail("read_json comes before train and infer") end
  return core.read_json(path, null)
end

-- torch_export(path, {batch = 8}): see torch_export.lua, which runs when a plan first calls this.
plan.torch_export = core.unwatched(function(path, sizes)
  if not base.torch_export then core.run_archive_files() end
  return base.torch_export(path, sizes)
end)

local RUNS = {}      -- in the place of the result of a file that has not ended
local results = {}   -- of required files, by path

-- require(name): what the file of that name gives, "lib.model" or "lib/model" for lib/model.lua
-- beside the plan. It runs once, with the plan's variables.
function plan.require(name)
  base.expect(name, "string", "the name that require is given")
  if base.begun then fail("require comes before train and infer") end
  local file, path = core.required(name, plan)
  if results[path] == RUNS then fail("require: %s requires itself", path) end
  if results[path] == nil then
    results[path] = RUNS
    local result = file()
    results[path] = result == nil or result
  end
  return results[path]
end

-- -------------------------------------------------------------------------- names in others' files

local MOST_NEAREST = 2000

local MOST_STARS = 16

-- How many stars a pattern has; ** is one.
local function stars(s) return select(2, string.gsub(s, "%*%*?", "")) end

local function check_pair(who, pattern, other)
  base.expect(pattern, "string", "a key of " .. who .. "'s names")
  base.expect(other, "string", string.format("what %s's names give for '%.80s'", who, pattern))
  for one in string.gmatch(pattern, "[^|]+") do
    local n = stars(one)
    if n > MOST_STARS then fail("%s's names: '%.80s' has more than %d *", who, one, MOST_STARS) end
    if stars(other) ~= n then
      fail("%s's names: '%.80s' has %d *, and '%.80s' has %d", who, one, n, other, stars(other))
    end
  end
end

local function matches_nothing(who, pattern, paths)
  local near, list = core.nearest(pattern, table.move(paths, 1, math.min(#paths, MOST_NEAREST), 1,
    {})), {}
  for i = 1, math.min(#near, 3) do list[i] = "'" .. near[i] .. "'" end
  fail("%s's names: no parameter is called '%.80s'; the nearest are %s", who, pattern,
    table.concat(list, ", "))
end

-- names = {["layers.*.wq.weight"] = "model.layers.*.self_attn.q_proj.weight", ...}: the names of
-- parameters in foreign files: a * stands for what the pattern's * matches (patterns.c). No two
-- parameters may get one name.
base.set_names = core.unwatched(function(who, names)
  if names == nil then return end
  base.expect(names, "table", who .. "'s names")
  local paths, given, taken = core.parameters(), {}, {}
  for _, path in ipairs(paths) do taken[path] = path end
  for pattern, other in pairs(names) do
    check_pair(who, pattern, other)
    if core.set_aliases(who, pattern, other, given, taken) == 0 then
      matches_nothing(who, pattern, paths)
    end
  end
end)
