-- fully_shard.lua: fully_shard, as in torch.distributed.fsdp: a model's parameters, their gradients
-- and what the optimizer keeps of them are cut over the ranks that share the batch.
--
--   for _, layer in ipairs(model.layers) do fully_shard(layer, mesh.dp) end
--   fully_shard(model, mesh.dp)
--
-- Each call makes a unit: of the parameters of its module, or of a list of modules, those that are
-- in no unit yet. They are gathered where the unit uses them, together, and their gradients are
-- reduced together; so modules inside come before what holds them.
--
-- The mesh is one dimension; or two, as mesh{"replicate", "shard"}: the parameters are cut over the
-- second, and every index of the first has a copy (hybrid: HSDP).
--
--   reshard_after_forward  true: what was gathered is given up after the forward, and gathered again
--                          for the backward; false: it is kept in between
--   shard_dim              the dimension of the parameters that is cut, where they have it; negative
--                          ones count from the last. Where it is not told it is the first that all
--                          ranks can have as much of, or else dimension 0
--   and those of mixed_precision (precision.lua)
local core, base, plan = ...
local fail = base.fail

local OPTIONS = {"reshard_after_forward", "shard_dim", table.unpack(base.policy_keys)}

local calls = {}         -- in the plan's order: what each was given, and the index of its unit
local call_of = {}       -- by module that was given to one
local inside = {}        -- by module: the call that has taken its parameters

local function modules_of(what)
  if base.kind(what) == "module" then return {what} end
  if base.kind(what) ~= "table" or rawlen(what) == 0 then
    fail("the first argument of fully_shard must be a module or a list of modules, not %s",
      base.kind(what) == "table" and "a list without any" or base.a(what))
  end
  local list = {}
  for i = 1, rawlen(what) do
    list[i] = base.expect(rawget(what, i), "module", string.format("fully_shard's module %d", i))
  end
  return list
end

-- That the module may be given to a call.
local function check_module(module, call)
  local name = base.class_name(module)
  local before, outer = call_of[module], inside[module]
  if before then
    fail("fully_shard: the %s of line %d is given twice: line %d has made it a unit already", name,
      base.line_of(module), before.line)
  end
  if outer == call then
    fail("fully_shard: the %s of line %d is in another module of the same list", name,
      base.line_of(module))
  end
  if outer then
    fail("fully_shard: the %s of line %d is part of the unit that line %d made: give it first, and "
      .. "then the module that holds it", name, base.line_of(module), outer.line)
  end
  if base.class(module) == base.ModuleList then
    fail("fully_shard: a ModuleList is not called, so that nothing tells when it is used: give its "
      .. "modules one by one, as in for _, layer in ipairs(model.layers) do fully_shard(layer, ...) "
      .. "end, or as a list")
  end
end

-- The modules below that are in no unit yet are the call's.
local function take(module, call)
  if inside[module] then return end
  inside[module] = call
  local children = base.children(module)
  for i = 2, #children, 2 do take(children[i], call) end
end

-- What of the mesh cuts the parameters, and what has copies of the parts.
local function mesh_of(mesh)
  local dims, own = base.dimensions(mesh, "fully_shard")
  if #dims == 1 then return {dims[1]}, {} end
  if #dims == 2 then return {dims[2]}, {dims[1]} end
  fail("fully_shard takes one dimension of the mesh, or two, the second of which cuts: mesh.%s, or "
    .. 'mesh{"%s", "%s"}; not %d', own[1], own[1], own[2], #dims)
end

-- Whether the unit gathers its parameters again for the backward.
local function resharding(options)
  local reshard = options.reshard_after_forward
  if reshard == nil then return true end
  return base.boolean(reshard, "fully_shard's reshard_after_forward")
end

-- fully_shard(module or {modules}, mesh.dp, {...}): what it was given.
plan.fully_shard = core.unwatched(function(what, mesh, options)
  if base.begun then fail("fully_shard comes before train and infer") end
  local modules = modules_of(what)
  options = base.options(options, "fully_shard", OPTIONS)
  local call = {line = core.line(), reshards = resharding(options)}
  call.shards, call.copies = mesh_of(mesh)
  if options.shard_dim ~= nil then
    call.dim = base.integer(options.shard_dim, "fully_shard's shard_dim", -8, 7)
  end
  local precision = base.policy_options(options)
  base.look_once(true)
  for _, module in ipairs(modules) do
    check_module(module, call)
    take(module, call)
    call_of[module] = call
    if precision then
      base.set_policy(module, base.policy(precision, "fully_shard"), "fully_shard")
    end
  end
  base.look_once(false)
  call.modules = modules
  calls[#calls + 1] = call
  return what
end)

-- The unit that begins with this module, which the graph has under this index; or nil.
function base.unit_of(module, index)
  local call = call_of[module]
  if call and not call.unit then
    call.unit = core.add_unit(index, call.line, call.shards, call.copies, call.reshards, call.dim)
  end
  return call and call.unit
end

-- When the model is part of the graph, so are all modules that were given to fully_shard.
function base.check_units()
  for _, call in ipairs(calls) do
    for _, module in ipairs(call.modules) do
      if not base.index(module) then
        fail("fully_shard of line %d is for a %s that is not part of the model", call.line,
          base.class_name(module))
      end
    end
  end
end
