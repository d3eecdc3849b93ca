-- files.lua: the files that a plan may read or require, and the names of its parameters in foreign files.
local core, base, plan = ...
local fail = base.fail

-- read_json(path, null): the file's content, with `null`, or else nothing, for what is null. The path is one that the command line names, as in -D
-- config=FILE, or that of a file in or below the plan's directory. Must come before train and
-- infer.
--- # Files
--- read_json(path, null?): the contents of a JSON file that the command line names, or that is below the plan's
--- folder; `null` stands in the place of null.
function plan.read_json(path, null)
  base.expect(path, "string", "the path that read_json is given")
  if base.begun then fail("read_json comes before train and infer") end
  return core.read_json(path, null)
end

--- torch_export(path, sizes?): the model of an archive of torch.export, and a table that describes it; `sizes` gives
--- sizes that were exported as symbols.
plan.torch_export = core.unwatched(function(path, sizes)
  if not base.torch_export then core.run_archive_files() end
  return base.torch_export(path, sizes)
end)

local RUNS = {}      -- in the place of the result of a file that has not ended
local results = {}   -- of required files, by path

--- require(name): runs `lib/model.lua` beside the plan once, for `"lib.model"`, and gives its result.
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

local MOST_STARS, MOST_PARTS = 16, 1024

-- The number of stars of a pattern; ** is one.
local function stars(s) return select(2, string.gsub(s, "%*%*?", "")) end

local PART = {"tensor", "dim", "part", "of"}

-- The name that `names` has for a pattern, and for a part of a tensor also {dim =, part =, of =}.
local function name_and_part(who, pattern, other)
  base.expect(pattern, "string", "a key of " .. who .. "'s names")
  local what = string.format("what %s's names give for '%.80s'", who, pattern)
  if type(other) == "string" then return other end
  if type(other) ~= "table" or base.kind(other) ~= "table" then
    fail("%s must be a string, or a table {tensor =, dim =, part =, of =}, not %s", what, base.a(other))
  end
  local given = base.options(other, what, PART)
  base.expect(given.tensor, "string", what .. ": tensor")
  local of = base.integer(given.of, what .. ": of", 2, MOST_PARTS)
  local dim, part = base.integer(given.dim, what .. ": dim", 0, 7), base.integer(given.part, what .. ": part", 1, of)
  if dim == 0 and string.find(given.tensor, "{}", 1, true) then
    fail("%s: {} in '%.80s' is the index of dimension 0, so no part is along it", what, given.tensor)
  end
  return given.tensor, {dim = dim, part = part, of = of}
end

local function check_stars(who, pattern, other)
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

-- Notes that the parameter is a part of the tensor of that name; `all` has the other parts.
local function claim(who, all, name, path, value, part)
  local tensor = all[name]
  if not tensor then
    tensor = {name = name, dim = part.dim, of = part.of, path = path, paths = {}, values = {}}
    all[name], all[#all + 1] = tensor, tensor
  end
  if tensor.of ~= part.of or tensor.dim ~= part.dim then
    fail("%s's names: '%.80s' has %d parts along dimension %d by %s, and %d along dimension %d by %s", who, name,
      tensor.of, tensor.dim, tensor.path, part.of, part.dim, path)
  end
  if tensor.paths[part.part] then
    fail("%s's names: %s and %s would both be part %d of '%.80s'", who, tensor.paths[part.part], path, part.part, name)
  end
  tensor.paths[part.part], tensor.values[part.part] = path, value
end

-- Each of these tensors has a parameter for each part.
local function join(who, all)
  for _, tensor in ipairs(all) do
    for i = 1, tensor.of do
      if not tensor.values[i] then
        fail("%s's names: '%.80s' has %d parts, and no parameter is part %d: give each part's name in names, with "
          .. "part = %d", who, tensor.name, tensor.of, i, i)
      end
    end
    core.join(who, tensor.dim, tensor.values)
  end
end

-- names = {["layers.*.wq.weight"] = "model.layers.*.self_attn.q_proj.weight", ...}: the names of
-- parameters in foreign files: a * is the text that the pattern's * matches (patterns.c). No two
-- parameters may get one name, except as parts of one tensor: {tensor = "model.layers.*.qkv.weight",
-- dim = 0, part = 1, of = 3}, side by side along the dimension.
base.set_names = core.unwatched(function(who, names)
  if names == nil then return end
  base.expect(names, "table", who .. "'s names")
  local paths, given, taken, joined = core.parameters(), {}, {}, {}
  for _, path in ipairs(paths) do taken[path] = path end
  for pattern, other in pairs(names) do
    local name, part = name_and_part(who, pattern, other)
    check_stars(who, pattern, name)
    local found = core.set_aliases(pattern, name)
    if #found == 0 then matches_nothing(who, pattern, paths) end
    for i = 1, #found, 3 do
      local path, alias = found[i], found[i + 1]
      if given[path] then fail("%s's names: '%.80s' and '%.80s' both name %s", who, given[path], pattern, path) end
      local is_free = not taken[alias] or (part and joined[alias]) or (not part and taken[alias] == path)
      if not is_free then
        fail("%s's names: %s and %s would both be called '%.80s'", who, taken[alias], path, alias)
      end
      given[path], taken[alias] = pattern, path
      if part then claim(who, joined, alias, path, found[i + 2], part) end
    end
  end
  join(who, joined)
end)
