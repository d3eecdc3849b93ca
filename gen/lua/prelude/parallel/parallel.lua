-- parallel.lua: the mesh, placements, redistributions, and parallelize, which gives a model's
-- modules their styles (styles.lua), as in torch.distributed.tensor.parallel.
local core, base, plan = ...
local fail = base.fail

-- --------------------------------------------------------------------------------------- the mesh

local MAX_DIMS, MAX_WORLD = 6, 65536
local REPLICATE = core.Replicate()

local names, sizes          -- of the dimensions of the one mesh
local dims_of = {}          -- of a mesh or a part of it: its dimensions, counted from 0

-- The dimension with this name among `dims`.
local function dimension_named(dims, name)
  local own = {}
  for i, d in ipairs(dims) do
    own[i] = names[d + 1]
    if own[i] == name then return d end
  end
  fail("the mesh has no dimension '%s'; it has %s", tostring(name), table.concat(own, ", "))
end

-- mesh.tp, or mesh["tp"]: a dimension of it. mesh{"dp", "tp"}: several, in this order.
local function part_of_mesh(dims)
  local mesh = {}
  dims_of[mesh] = dims
  return base.make("mesh", setmetatable(mesh, {
    __index = function(_, name) return part_of_mesh{dimension_named(dims, name)} end,
    __call = core.counted("mesh", function(_, names)
      base.expect(names, "table", 'what a mesh is called with, as in mesh{"dp", "tp"},')
      local some, seen = {}, {}
      for i = 1, base.length(names, "what a mesh is called with") do
        some[i] = dimension_named(dims, rawget(names, i))
        if seen[some[i]] then fail("mesh{...} names '%s' twice", rawget(names, i)) end
        seen[some[i]] = true
      end
      if #some == 0 then fail('a part of the mesh has a dimension at least, as in mesh{"tp"}') end
      return part_of_mesh(some)
    end),
    __newindex = function() fail("a mesh cannot be changed") end,
    __tostring = function() return "mesh" end,
    __metatable = false,
  }))
end

-- {{"dp", 2}, {"tp", 4}} in this order; {dp = 2, tp = 4} sorted by name. Each as {name =, size =,
-- link =}: the link from the options next to the size, {"dp", 2, bandwidth = 25e9, latency =
-- 10e-6}, {dp = {2, ...}}. The memory and the device of a rank are no dimensions.
local function dimensions(t)
  local list = {}
  for key, value in pairs(t) do
    if key == "memory" or key == "device" or key == "cluster" then
      -- see memory_of, set_device, set_cluster
    elseif type(key) == "string" then
      local hint = core.suggestion(key, {"memory", "device", "cluster"})
      if #t > 0 and hint ~= "" then fail("device_mesh knows no '%.60s'%s", key, hint) end
      local link = base.kind(value) == "table" and value or {value}
      list[#list + 1] = {name = key, size = rawget(link, 1), link = link, plain = 1}
    else
      base.expect(value, "table", 'a dimension of the mesh, as in {"tp", 2},')
      list[#list + 1] = {name = rawget(value, 1), size = rawget(value, 2), link = value, plain = 2}
    end
  end
  if #t > 0 and #t < #list then fail("device_mesh: name all dimensions in the same way") end
  return list
end

-- The bandwidth of a rank's link along the dimension, in bytes a second, and the latency of a
-- collective over it, in seconds; 0 if not given.
local function link_of(entry, what)
  for key in pairs(entry.link) do
    local plain = math.type(key) == "integer" and key >= 1 and key <= entry.plain
    if not plain and key ~= "bandwidth" and key ~= "latency" then
      local hint = type(key) == "string" and core.suggestion(key, {"bandwidth", "latency"}) or ""
      fail("%s has a size, a bandwidth and a latency, but no '%.60s'%s", what, tostring(key), hint)
    end
  end
  local bandwidth, latency = rawget(entry.link, "bandwidth"), rawget(entry.link, "latency")
  if bandwidth ~= nil then
    bandwidth = base.number(bandwidth, "the bandwidth of " .. what .. ", in bytes a second,", 1e6,
      1e18)
  end
  if latency ~= nil then
    latency = base.number(latency, "the latency of " .. what .. ", in seconds,", 1e-12, 1000)
  end
  return bandwidth or 0, latency or 0
end

-- "80GiB" in bytes, or nil.
local function bytes_of(text)
  local units = {[""] = 1, K = 1e3, M = 1e6, G = 1e9, T = 1e12, Ki = 2^10, Mi = 2^20, Gi = 2^30, Ti = 2^40}
  local number, unit = text:match("^(%d%d?%d?%d?%d?%d?%.?%d?%d?%d?) ?([KMGT]?i?)B$")
  local bytes = number and units[unit] and tonumber(number) * units[unit] or 0
  return bytes >= 1 and math.floor(bytes) or nil
end
local AS_BYTES = '"80GiB": in B, KiB to TiB by 1024, or KB to TB by 1000; it is not "%.60s"'

-- "80GiB", the memory of a rank, in bytes.
function base.memory(given)
  base.expect(given, "string", 'the memory of a rank, as in memory = "80GiB",')
  return bytes_of(given) or fail("the memory of a rank is as in " .. AS_BYTES, given)
end

-- device_mesh{ ..., memory = "80GiB" }; 0 if not given.
local function memory_of(t)
  local given = rawget(t, "memory")
  return given == nil and 0 or base.memory(given)
end

-- The ranks of the mesh; a cluster must have as many devices.
local world

-- Where the ranks run: device_mesh{ ..., cluster = "dgx-h100:16" }, "FILE.json", or such a file's content as a table. The
-- cluster's device and memory count where the plan says none itself.
local CLUSTERS = {["dgx-a100"] = "A100", ["dgx-a100-40gb"] = "A100-40GB", ["dgx-h100"] = "H100", ["dgx-h200"] = "H200", ["dgx-b200"] = "B200"}
local FIELDS = {
  name = "string", device = "string", nodes = "integer", devices_per_node = "integer", memory = "string",
  intra = {bandwidth = "number", latency = "number"}, inter = {bandwidth = "number", latency = "number", cards = "integer"},
}

local function check_cluster(what, of, fields)
  for key, value in pairs(of) do
    local want = type(key) == "string" and fields[key]
    if not want then
      local names = {}
      for name in pairs(fields) do names[#names + 1] = name end
      table.sort(names)
      fail("%s has no '%.60s': it may have %s", what, tostring(key), table.concat(names, ", "))
    elseif type(want) == "table" then
      base.expect(value, "table", string.format("'%s' of %s", key, what))
      check_cluster(string.format("'%s' of %s", key, what), value, want)
    elseif want == "string" then
      base.expect(value, "string", string.format("'%s' of %s", key, what))
    elseif want == "integer" then
      base.integer(value, string.format("'%s' of %s", key, what), 1, MAX_WORLD)
    elseif key == "bandwidth" then
      base.number(value, string.format("the bandwidth, in bytes a second, of %s,", what), 1e6, 1e18)
    else
      base.number(value, string.format("the latency, in seconds, of %s,", what), 1e-12, 1000)
    end
  end
end

-- The machine on which tpgen runs: its ranks share the memory, less a tenth for the system.
local THIS, FOR_RANKS = "this", 0.9

local function this_machine()
  local m = core.this_machine()
  local link = {bandwidth = m.bandwidth, latency = m.latency}
  return {name = THIS, device = THIS, nodes = 1, devices_per_node = m.cores, memory = m.memory * FOR_RANKS // world,
    intra = link, inter = link}, "this machine"
end

local function read_cluster(given)
  if given == THIS then return this_machine() end
  if type(given) ~= "string" then
    check_cluster("the cluster", base.expect(given, "table", 'the cluster of the mesh, a name as in cluster = "dgx-h100:16",'), FIELDS)
    return given, "the cluster"
  end
  local preset, nodes = given:match("^(.-):(%d%d?%d?%d?%d?)$")
  local device = CLUSTERS[preset or given]
  if device then
    nodes = math.tointeger(tonumber(nodes or 1))
    if nodes < 1 then fail("the cluster '%s' has no nodes", given) end
    return {name = given, device = device, nodes = nodes, memory = core.device_facts(device).memory},
      "the cluster '" .. given .. "'"
  end
  if not given:find("%.json$") then
    fail("there is no cluster '%.60s': there are %s, dgx-h100:16 of 16 nodes, or say the path of a file, .json", given,
      core.cluster_names())
  end
  local of = base.expect(core.read_json(given, nil, true), "table", string.format("the content of the cluster's file %s", given))
  check_cluster(given, of, FIELDS)
  -- The file of a device is named from there.
  if of.device and of.device:find("%.json$") and not of.device:find("^/") then of.device = given:gsub("[^/]*$", "") .. of.device end
  return of, given
end

-- Returns the device, and the memory that the cluster gives it, or 0. device: the plan's own.
local function set_cluster(given, device)
  local of, what = read_cluster(given)
  device = device or of.device
  if device == nil then fail("%s has no device, as in \"device\": \"H100\"", what) end
  local facts = type(device) == "string" and core.device_facts(device) or {}
  local intra, inter = of.intra or {}, of.inter or {}
  local devices = of.devices_per_node or math.tointeger(facts.devices) or 8
  local nodes = of.nodes or 1
  local function fact(value, name, key)
    if value or facts[name] then return value or facts[name] end
    if not facts.devices then fail("%s has no %s, and its device is no preset that has one", what, key) end
    if world == 1 or key:find("^inter") and nodes == 1 then return 1e9 end -- of a link that no group has
    fail("the mesh has %d ranks, and %s has figures of %d device%s and no %s: say it in the file of a cluster, or measure with "
      .. "more devices", world, device, math.tointeger(facts.devices), facts.devices > 1 and "s" or "", key)
  end
  if world > nodes * devices then
    fail("the mesh has %d ranks, and %s has %d devices: %d node%s of %d", world, what, nodes * devices, nodes,
      nodes > 1 and "s" or "", devices)
  end
  core.set_cluster(of.name or what, type(device) == "string" and device or "", nodes, devices, inter.cards or devices,
    fact(intra.bandwidth, "intra_bandwidth", "intra.bandwidth"), fact(intra.latency, "intra_latency", "intra.latency"),
    fact(inter.bandwidth, "inter_bandwidth", "inter.bandwidth"), fact(inter.latency, "inter_latency", "inter.latency"))
  if math.type(of.memory) then return device, math.floor(of.memory) end
  if of.memory then return device, bytes_of(of.memory) or fail("the memory of " .. what .. " is as in " .. AS_BYTES, of.memory) end
  return device, 0
end

-- The device of a rank: device_mesh{ ..., device = "H100" }, or {flops = 989e12, memory_bandwidth =
-- 3.35e12}: the peak of multiplications and additions a second in products of matrices, and bytes a
-- second. The schedule and the simulation of the step depend on them.
local function set_device(given)
  if given == nil then return end
  if type(given) == "string" then return core.set_device(given) end
  base.expect(given, "table", 'the device of the mesh, as in device = "H100",')
  for key in pairs(given) do
    if key ~= "flops" and key ~= "memory_bandwidth" then
      fail("a device has flops and a memory_bandwidth, but no '%.60s'", tostring(key))
    end
  end
  core.set_device(base.number(rawget(given, "flops"), "the device's flops, a second,", 1e6, 1e21),
    base.number(rawget(given, "memory_bandwidth"), "the device's memory_bandwidth, in bytes a second,",
      1e6, 1e18))
end

local function make_mesh(t)
  local list = dimensions(t)
  if #list < 1 or #list > MAX_DIMS then
    fail("a mesh has 1 to %d dimensions, not %d", MAX_DIMS, #list)
  end
  local found, dims, bandwidths, latencies = {}, {}, {}, {}
  sizes, world = {}, 1
  for i, entry in ipairs(list) do
    local name = base.expect(entry.name, "string", "the name of a dimension of the mesh")
    for _, other in ipairs(found) do
      if other == name then fail("the mesh has two dimensions '%s'", name) end
    end
    local what = string.format("the mesh's '%s'", name)
    found[i], dims[i] = name, i - 1
    sizes[i] = base.integer(entry.size, "the size of " .. what, 1, MAX_WORLD)
    bandwidths[i], latencies[i] = link_of(entry, what)
    world = world * sizes[i]
    if world > MAX_WORLD then fail("the mesh has more than %d ranks", MAX_WORLD) end
  end
  names = found
  local device, cluster, memory, its_memory = rawget(t, "device"), core.cluster_option(), memory_of(t), 0
  if cluster == nil then cluster = rawget(t, "cluster") end
  if cluster == nil and type(device) == "string" and core.device_facts(device) then -- in as many usual nodes as it takes
    local devices = math.tointeger(core.device_facts(device).devices)
    set_cluster({name = device, device = device, nodes = (world + devices - 1) // devices})
  elseif cluster ~= nil then
    device, its_memory = set_cluster(cluster, device)
  end
  core.set_mesh(found, sizes, bandwidths, latencies, memory > 0 and memory or its_memory)
  set_device(device)
  return part_of_mesh(dims)
end

--- # The mesh, and layouts
--- device_mesh(t): `device_mesh{ {"dp", 2}, {"tp", 4} }`: one to six dimensions; `{"dp", 2, bandwidth =, latency =}`
--- gives the link of a rank, `memory = "80GiB"` its memory, `device = "H100"` what it is, `cluster = "dgx-h100:16"`
--- (or a file, .json) where it runs. `mesh.tp` is one dimension, `mesh{"dp", "tp"}` several.
function plan.device_mesh(t)
  base.expect(t, "table", 'what device_mesh is given, as in device_mesh{ {"dp", 1}, {"tp", 2} },')
  if names then fail("device_mesh is called twice: a plan has one mesh") end
  if base.begun then fail("device_mesh comes before train and infer") end
  return make_mesh(t)
end

function base.has_mesh() return names ~= nil end

-- A plan without a mesh is for one rank.
function base.need_mesh()
  if not names then make_mesh{ {"rank", 1} } end
end

-- The dimensions of a mesh or a part of it, counted from 0, and its names.
function base.mesh_dimensions(mesh, who)
  base.expect(mesh, "mesh", "the mesh given to " .. who)
  local own = {}
  for i, d in ipairs(dims_of[mesh]) do own[i] = names[d + 1] end
  return dims_of[mesh], own
end

-- ------------------------------------------------------------------------ dimensions that are split

-- If a plan wants groups of ranks within a mesh dimension (reshard_after_forward = 4 of a "dp" of
-- 8), the graph has two dimensions for it: one over the groups, "dp_across" of 2, and one within a
-- group, "dp_within" of 4. The plan still refers to mesh.dp: dimensions are counted as in the plan
-- until they are passed to the graph.
local groups = {}           -- by dimension: the size of its groups, and the line that requested them

-- The micro-batches of a step are a dimension of the graph's mesh, in time: the one after this one of
-- the plan's; nil: a step has one.
local time_behind

function base.size_of_dimension(dim) return sizes[dim + 1] end

-- Splits the dimension in groups of n ranks, as the option `what` requests.
function base.split(dim, n, what)
  local name, size, before = names[dim + 1], sizes[dim + 1], groups[dim]
  if size % n ~= 0 then
    fail("%s = %d does not divide the %d ranks of %s", what, n, size, name)
  end
  if before and before.ranks ~= n then
    fail("%s = %d: line %d has divided %s into groups of %d; all of its groups are of one size", what, n,
      before.line, name, before.ranks)
  end
  groups[dim] = before or {ranks = n, line = core.line()}
end

-- The dimensions of the graph for one of the plan's: one, or the outer and the inner one.
local function in_graph(dim)
  local first = dim
  for d = 0, dim - 1 do first = first + (groups[d] and 1 or 0) end
  if time_behind and dim > time_behind then first = first + 1 end
  if groups[dim] then return first, first + 1 end
  return first
end

-- The same for a list. within: for split dimensions only the inner ones.
function base.dims_in_graph(dims, within)
  local list = {}
  for _, dim in ipairs(dims) do
    local first, inner = in_graph(dim)
    if not (within and inner) then list[#list + 1] = first end
    if inner then list[#list + 1] = inner end
  end
  return list
end

-- Placements by dimension, as the graph counts these.
function base.placed_in_graph(placed)
  local list = {}
  for dim, placement in pairs(placed) do
    local first, inner = in_graph(dim)
    list[first] = placement
    if inner then list[inner] = placement end
  end
  return list
end

local function every_dimension()
  local list = {}
  for i = 1, #names do list[i] = i - 1 end
  return list
end

-- Called when all of the plan's groups are known: splits the graph's dimensions.
function base.split_mesh()
  for dim = 0, #names - 1 do
    local g, name = groups[dim], names[dim + 1]
    if g then
      if #base.dims_in_graph(every_dimension()) > MAX_DIMS then
        fail("line %d divides %s into groups of %d: that makes one more dimension than a mesh can have, %d",
          g.line, name, g.ranks, MAX_DIMS)
      end
      for _, other in ipairs(names) do
        if other == name .. "_across" or other == name .. "_within" then
          fail("line %d divides %s into groups, whose dimensions would be %s_across and %s_within: the "
            .. "mesh has a %s already", g.line, name, name, name, other)
        end
      end
      core.split_mesh((in_graph(dim)), g.ranks, name .. "_across", name .. "_within")
    end
  end
end

-- Adds n micro-batches to the graph's mesh. They cut the ranks' parts of the batch, so they come after
-- the last dimension over which an input is distributed.
function base.add_microbatches(n, batch)
  local behind = -1
  for _, description in pairs(batch) do
    local d = base.described(description)
    for dim in pairs(d and d.placed or {}) do behind = math.max(behind, dim) end
  end
  if #base.dims_in_graph(every_dimension()) >= MAX_DIMS then
    fail("microbatches = %d: that makes one more dimension than a mesh can have, %d", n, MAX_DIMS)
  end
  for _, name in ipairs(names) do
    if name == "microbatch" then fail("microbatches = %d: the mesh has a microbatch already", n) end
  end
  local _, inner = in_graph(behind)
  local at = behind < 0 and 0 or (inner or in_graph(behind)) + 1
  time_behind = behind
  core.add_time(at, "microbatch", n)
  base.time = at
end

local function one_dimension(mesh, who)
  base.expect(mesh, "mesh", "the mesh given to " .. who)
  local dims = dims_of[mesh]
  if #dims ~= 1 then
    fail("%s works along one dimension of the mesh: give it mesh.%s, say, not the whole mesh", who,
      names[#names])
  end
  return dims[1]
end

-- The mesh's one dimension, and the number of ranks along it.
function base.one_dimension(mesh, who)
  local dim = one_dimension(mesh, who)
  return dim, sizes[dim + 1]
end

function base.ranks_along(dim) return sizes[dim + 1] end

-- Whether the mesh has other dimensions than these.
function base.has_other_dimensions(dims) return #names > #dims end

-- ------------------------------------------------------------------------------------- placements

-- Shard(0), or Shard(0, order): if several mesh dimensions shard the same dimension of a tensor, the
-- one of order 0 cuts it first, and the next one cuts its parts. The default is 0; dimensions of equal
-- order cut in the order of the mesh.
local function shard(dim, order)
  dim = base.integer(dim, "Shard's dimension", -8, 7)
  if order ~= nil then order = base.integer(order, "Shard's order", 0, MAX_DIMS - 1) end
  return core.Shard(dim, order)
end

-- Partial(), Partial("sum"), "max" or "min": the value is the reduction of the ranks' values.
local function partial(reduction)
  if reduction ~= nil and reduction ~= "sum" and reduction ~= "max" and reduction ~= "min" then
    fail('Partial\'s reduction is "sum", "max" or "min", not %s', base.a(reduction))
  end
  return core.Partial(reduction)
end

--- Shard(dim, order?): the layout of a tensor that is cut along a dimension. Of several dimensions of the mesh that
--- cut the same one, that of order 0 cuts first.
plan.Shard, plan.Partial = shard, partial
--- Replicate(): the layout of a tensor that is whole on every rank.
--- Partial(reduction = "sum"): the layout of a tensor whose terms the ranks have: `"sum"`, `"max"` or `"min"`.
function plan.Replicate() return core.Replicate() end
base.shard = shard

-- The placements given for a mesh or a part of it, by the mesh's dimensions, counted from 0: a list
-- with one for each, where false leaves it open; for one dimension also a lone placement.
local function placements_over(mesh, given, who)
  base.expect(mesh, "mesh", "the mesh given to " .. who)
  local dims, placed, n = dims_of[mesh], {}, 0
  if base.kind(given) == "placement" and #dims == 1 then given = {given} end
  local own = {}
  for i, d in ipairs(dims) do own[i] = names[d + 1] end
  local expected = string.format("a list of one for each dimension of the mesh, {%s}",
    table.concat(own, ", "))
  if base.kind(given) ~= "table" then
    fail("%s: the placements must be %s, not %s", who, expected, base.a(given))
  end
  for key, placement in pairs(given) do
    n = n + 1
    if math.type(key) ~= "integer" or key < 1 or key > #dims then
      fail("%s: the placements must be %s, and nothing else", who, expected)
    end
    if placement ~= false then
      base.expect(placement, "placement", string.format("%s's placement %d", who, key))
      placed[dims[key]] = placement
    end
  end
  if n ~= #dims then
    fail("%s: the placements must be %s, not of %d", who, expected, n)
  end
  return placed
end

local function distribute_one(what, placed)
  if base.kind(what) == "table" then
    for _, d in pairs(what) do distribute_one(d, placed) end
    return what
  end
  if base.kind(what) ~= "description" then
    fail("distribute takes what a batch is made of, such as randn{20, 10}, or a table of it, "
      .. "not %s", base.a(what))
  end
  for dim, placement in pairs(placed) do base.described(what).placed[dim] = placement end
  return what
end

-- distribute(description, mesh.dp, Shard(0)): the layout of that input of the step. Or a table of
-- them. For several dimensions of the mesh a list of placements: distribute(x, mesh, {Shard(0),
-- false}).
--- distribute(what, mesh, placements): the layout of an input, or of a table of inputs; over several dimensions a
--- list of placements.
function plan.distribute(what, mesh, placements)
  return distribute_one(what, placements_over(mesh, placements, "distribute"))
end

-- --------------------------------------------------------------------------------- redistribution

local MOVED_TYPES = {"float32", "bfloat16"}

-- The type in which a value, or its gradient, is moved; nil: its own.
local function type_option(options, key, x)
  local name = options[key]
  if name == nil then return nil end
  if not base.is_floating(x) then
    base.misfit("%s is for floating tensors, not for %s", key, core.type(x))
  end
  for _, known in ipairs(MOVED_TYPES) do
    if name == known then return name end
  end
  base.misfit("%s is one of %s, not %s", key, table.concat(MOVED_TYPES, ", "), base.a(name))
end

-- x:redistribute(mesh, {Shard(0), Replicate()}): the same values in this layout; false in the list
-- keeps the placement. x:redistribute(mesh.tp, Shard(1)): along tp, and unchanged along the others.
-- {forward_dtype =, backward_dtype =}: the type in which the values are moved, and which they keep;
-- the type in which their gradient is moved.
--- F.redistribute(x, mesh, placements, options?): the same values in this layout; false keeps a placement.
---   forward_dtype: the type in which the values are moved, and which they keep
---   backward_dtype: the type in which the gradient is moved
local REDISTRIBUTE_OPTIONS = base.option_names("F.redistribute", {"forward_dtype", "backward_dtype"})

base.method("redistribute", function(x, mesh, placements, options)
  options = base.options_of(options, REDISTRIBUTE_OPTIONS)
  local placed = placements_over(mesh, placements, "redistribute")
  return core.redistribute(x, base.placed_in_graph(placed), type_option(options, "forward_dtype", x),
    type_option(options, "backward_dtype", x), "redistribute")
end, false)

-- The same values, whole on every rank: with it a plan allows operations that no rule can shard.
--- F.replicate(x): the same values, whole on every rank.
base.method("replicate", function(x)
  local placed = {}
  for _, dim in ipairs(names and every_dimension() or {}) do placed[dim] = REPLICATE end
  return core.redistribute(x, base.placed_in_graph(placed), nil, nil, "replicate")
end)

-- ------------------------------------------------------------------------------------ parallelize

local MOST_PATHS = 2000

-- The paths below the module, for a list of suggestions.
local function all_paths(module, prefix, list)
  local children = base.children(module)
  for i = 1, #children, 2 do
    if #list >= MOST_PATHS then return list end
    local name = prefix .. children[i]
    list[#list + 1] = name
    all_paths(children[i + 1], name .. ".", list)
  end
  return list
end

local function nothing_matches(pattern, module)
  local paths = core.nearest(pattern, all_paths(module, "", {}))
  if #paths == 0 then
    fail("no module matches '%s': %s holds no modules", pattern, base.class_name(module))
  end
  local nearest = {}
  for i = 1, math.min(#paths, 3) do nearest[i] = "'" .. paths[i] .. "'" end
  fail("no module matches '%s'; the nearest names are %s", pattern, table.concat(nearest, ", "))
end

base.nothing_matches = nothing_matches

local styled = {}        -- {modules, dimension, style} of each

local function apply(modules, dim, s)
  local style = base.style(s)
  styled[#styled + 1] = {modules, dim, style}
  core.apply_style(modules, dim, style.name, style.line, style.requests)
  for _, module in ipairs(style.prepare and modules or {}) do style.prepare(module) end
end

-- Styles beside auto() over several dimensions of the mesh are over one of these, which auto() finds: as a dimension
-- they have -1, -2 ..., the place of these dimensions here.
local alternatives = {}

local function has_auto(styles)
  for _, value in pairs(styles) do
    if base.kind(value) == "automatic" or base.kind(value) == "table" and has_auto(value) then return true end
  end
  return false
end

local function dimension_of_styles(dims, styles)
  if #dims == 1 then return dims[1] end
  if not has_auto(styles) then return nil end
  alternatives[#alternatives + 1] = dims
  return -#alternatives
end

-- A nested plan is for the modules that its key matches: below those in `inside`, which matched the
-- prefix. dim: nil where the mesh has several, and no style may be.
local function walk(module, dims, dim, t, prefix, inside, mesh)
  for key, value in pairs(t) do
    if type(key) ~= "string" then
      fail('parallelize: the key of a style must be a pattern of names, as ["layers.*.w1"], not %s',
        tostring(key))
    end
    local pattern = prefix .. key
    if string.find("." .. pattern .. ".", "..", 1, true) then
      fail("parallelize: the pattern '%s' has an empty name in it", pattern)
    end
    if #pattern > 1000 then fail("parallelize: a pattern of %d letters", #pattern) end
    local found = core.matching(inside, key)
    if #found == 0 then nothing_matches(pattern, module) end
    if base.kind(value) == "style" then
      apply(found, dim or one_dimension(mesh, "parallelize"), value)
    elseif base.kind(value) == "automatic" then
      base.leave_to_auto(found, dims, value)
    else
      if base.kind(value) ~= "table" then
        fail("parallelize: '%s' must get a style such as Colwise(), auto(), or a table of them, not %s",
          pattern, base.a(value))
      end
      walk(module, dims, dim, value, pattern .. ".", found, mesh)
    end
  end
end

-- The modules given to parallelize whose gathers and reductions over the dimension are decomposed
-- into pieces, which overlap with the products next to them.
local asynchronous = {}

local OPTIONS = base.option_names("parallelize", {"async_tp"})

local function note_async(module, dim, options)
  local pieces = base.options(options, "parallelize", OPTIONS).async_tp
  if pieces == nil or pieces == false then return end
  if pieces ~= true then
    if math.type(pieces) ~= "integer" or pieces < 2 or pieces > 64 then
      fail("parallelize: async_tp is true, false or a number of pieces from 2 to 64, not %s",
        math.type(pieces) and tostring(pieces) or base.a(pieces))
    end
  end
  asynchronous[#asynchronous + 1] =
    {module = module, dim = dim, pieces = pieces == true and 0 or pieces, line = core.line()}
end

--- parallelize(module, mesh, styles, options?): gives modules their styles, or auto(), by patterns of their names:
--- `{["layers.*.w1"] = Colwise()}`; or one style for the module itself. Gives the module. Over a mesh of several
--- dimensions styles stand beside auto(), which finds the one that they are over.
---   async_tp: true, or a number of pieces: gathers and reductions travel in pieces, beside the products
plan.parallelize = core.unwatched(function(module, mesh, styles, options)
  base.expect(module, "module", "the first argument of parallelize")
  base.expect(mesh, "mesh", "the mesh given to parallelize")
  local dims = dims_of[mesh]
  local is_auto = base.kind(styles) == "automatic"
  if base.begun then fail("parallelize comes before train and infer") end
  if not is_auto and base.kind(styles) ~= "table" then one_dimension(mesh, "parallelize") end
  for _, dim in ipairs(dims) do note_async(module, dim, options) end
  core.look_anew()
  if is_auto then
    base.leave_to_auto({module}, dims, styles)
  elseif base.kind(styles) == "style" then
    apply({module}, dims[1], styles)
  else
    if base.kind(styles) ~= "table" then
      fail("the third argument of parallelize must be a style or a table of them, not %s",
        base.a(styles))
    end
    walk(module, dims, dimension_of_styles(dims, styles), styles, "", {module}, mesh)
  end
  return module
end)

-- Called before the model is part of the graph: adapters are cut in the same parts as their
-- modules.
function base.part_adapters()
  local is_styled = {}
  for _, s in ipairs(styled) do
    for _, module in ipairs(s[1]) do
      base.part_adapter(module, s[3])
      is_styled[module] = true
    end
  end
  base.part_automatic(is_styled)
end

-- Called when the model is part of the graph: adds the styles of its modules.
base.lower_styles = core.unwatched(function()
  local dims = {}
  for _, dim in ipairs(every_dimension()) do dims[dim] = base.dims_in_graph{dim} end
  for i, of_styles in ipairs(alternatives) do dims[-i] = base.dims_in_graph(of_styles) end
  for _, s in ipairs(styled) do
    for _, module in ipairs(s[1]) do base.style_adapter(module, s[2], s[3]) end
  end
  core.lower_styles(dims)
  base.lower_auto()
  base.place_parameters()
  for _, a in ipairs(asynchronous) do
    local index = base.index(a.module)
    if not index then
      fail("async_tp of line %d is for a %s that is not part of the model", a.line,
        base.class_name(a.module))
    end
    for _, dim in ipairs(base.dims_in_graph{a.dim}) do
      core.add_async(index, dim, a.pieces, a.line)
    end
  end
end)
