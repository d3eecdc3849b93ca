-- fully_shard.lua: fully_shard, as in torch.distributed.fsdp: shards a model's parameters, their
-- gradients and the optimizer's state over the ranks that share the batch. Also replicate: all
-- ranks have copies, except of the tensors that ZeRO shards.
--
--   for _, layer in ipairs(model.layers) do fully_shard(layer, mesh.dp) end
--   fully_shard(model, mesh.dp)
--
-- Each call makes a unit: the parameters of its module, or of a list of modules, that are in no
-- unit yet. They are gathered together where the unit uses them, and their gradients are reduced
-- together. So calls for inner modules come first.
--
-- The mesh is one dimension; or two, as mesh{"replicate", "shard"}: the second one shards the
-- parameters, and every index of the first has a copy (hybrid: HSDP).
--
--   reshard_after_forward  true: gathered parameters are freed after the forward and gathered again
--                          for the backward; false: they are kept in between; a number: a part of
--                          them is kept, sharded over groups of so many ranks, which gather it for
--                          the backward among themselves
--   shard_dim              the dimension of the parameters that is sharded, if they have it; negative
--                          ones count from the last. Default: the first one that divides evenly over
--                          the ranks, else dimension 0
--   also                   mesh.cp: a further dimension of the mesh that shards, one that has the batch
--                          in parts, too
--   and those of mixed_precision (precision.lua)
local core, base, plan = ...
local fail = base.fail

local OPTIONS = base.option_names("fully_shard",
  {"reshard_after_forward", "shard_dim", "also", table.unpack(base.policy_keys)})

local calls = {}         -- in the plan's order: the arguments of each, and the index of its unit;
                         -- core.taken: which of them has taken a module's parameters
local call_of = {}       -- by module that was given to one
base.calls_of_modules = call_of

local function modules_of(what, who)
  if base.kind(what) == "module" then return {what} end
  if base.kind(what) ~= "table" or rawlen(what) == 0 then
    fail("the first argument of %s must be a module or a list of modules, not %s", who,
      base.kind(what) == "table" and "a list without any" or base.a(what))
  end
  local list = {}
  for i = 1, base.length(what, "the first argument of " .. who) do
    list[i] = base.expect(rawget(what, i), "module", string.format("%s's module %d", who, i))
  end
  return list
end

-- An error if the module cannot be given to a call.
local function check_module(module, call)
  local who, name = call.who, base.class_name(module)
  local before, outer = call_of[module], calls[core.taken(module)]
  if before then
    fail("%s: the %s of line %d is given twice: line %d has made it a unit already", who, name,
      base.line_of(module), before.line)
  end
  if outer == call then
    fail("%s: the %s of line %d is in another module of the same list", who, name,
      base.line_of(module))
  end
  if outer then
    fail("%s: the %s of line %d is part of the unit that line %d made: give it first, and "
      .. "then the module that holds it", who, name, base.line_of(module), outer.line)
  end
  if base.class(module) == base.ModuleList and who == "fully_shard" then
    fail("fully_shard: a ModuleList is not called, so that nothing tells when it is used: give its "
      .. "modules one by one, as in for _, layer in ipairs(model.layers) do fully_shard(layer, ...) "
      .. "end, or as a list")
  end
end

-- The mesh dimensions that shard the parameters, and those that replicate the parts.
local function mesh_of(mesh, who)
  local dims, own = base.mesh_dimensions(mesh, who)
  if #dims == 1 then return {dims[1]}, {} end
  if #dims == 2 then return {dims[2]}, {dims[1]} end
  fail("%s takes one dimension of the mesh, or two (it cuts along the second): mesh.%s, or "
    .. 'mesh{"%s", "%s"}; not %d', who, own[1], own[1], own[2], #dims)
end

-- Whether the unit gathers its parameters again for the backward; or the size of the groups within
-- the sharding mesh dimension that do so. Groups of one have nothing to gather, and a group of all
-- ranks is no group.
local function resharding(options, dim)
  local reshard, what = options.reshard_after_forward, "fully_shard's reshard_after_forward"
  if reshard == nil then return true end
  if type(reshard) ~= "number" then
    if type(reshard) ~= "boolean" then
      fail("%s must be true, false, or how many ranks make a group, not %s", what, base.a(reshard))
    end
    return reshard
  end
  local size = base.size_of_dimension(dim)
  base.integer(reshard, what, 1, size)
  if reshard == 1 or reshard == size then return reshard == size end
  base.split(dim, reshard, what)
  return reshard
end

-- Makes these modules, without those that are in a unit, a unit of the call.
local function make_unit(modules, call)
  calls[#calls + 1] = call
  for _, module in ipairs(modules) do
    check_module(module, call)
    core.take(module, #calls)
    call_of[module] = call
  end
  call.modules = modules
end

-- The dimension of the parameters to shard, by the options, or nil.
local function dim_option(options, who)
  if options.shard_dim == nil then return nil end
  return base.integer(options.shard_dim, who .. "'s shard_dim", -8, 7)
end

-- Sets the policy among the options, if there is one, for these modules.
local function set_policies(modules, options, who)
  local precision = base.policy_options(options)
  for _, module in ipairs(precision and modules or {}) do
    base.set_policy(module, base.policy(precision, who), who)
  end
end

-- Adds the further dimensions that shard.
local function add_further(shards, also, mesh)
  for _, dim in ipairs((base.mesh_dimensions(also, "fully_shard's also"))) do
    for _, d in ipairs((base.mesh_dimensions(mesh, "fully_shard"))) do
      if d == dim then fail("fully_shard: also is a dimension that the mesh given to it has already") end
    end
    shards[#shards + 1] = dim
  end
end

--- # Data parallel
--- fully_shard(what, mesh, options?): a unit of parameters that are cut over the ranks of `mesh`, gathered together
--- and whose gradients are reduced together: a module, or a list of modules, less what is in a unit already. Over
--- `mesh{"replicate", "shard"}` every index of the first has a copy.
---   reshard_after_forward = true: gathered parameters are given up after the forward; false: they stay; a number:
---     parts stay, gathered among so many ranks
---   shard_dim: the dimension of the parameters that is cut; by default the first one that divides evenly, else 0
---   also: a further dimension of the mesh that cuts them, as `mesh.cp`
---   param_dtype: see `mixed_precision`
---   reduce_dtype: see `mixed_precision`
---   output_dtype: see `mixed_precision`
---   cast_forward_inputs: see `mixed_precision`
plan.fully_shard = core.unwatched(function(what, mesh, options)
  if base.begun then fail("fully_shard comes before train and infer") end
  core.look_anew()
  local modules = modules_of(what, "fully_shard")
  options = base.options(options, "fully_shard", OPTIONS)
  local call = {who = "fully_shard", line = core.line()}
  call.shards, call.copies = mesh_of(mesh, "fully_shard")
  call.reshards = resharding(options, call.shards[1])
  call.dim = dim_option(options, "fully_shard")
  if options.also ~= nil then add_further(call.shards, options.also, mesh) end
  make_unit(modules, call)
  set_policies(modules, options, "fully_shard")
  return what
end)

-- ------------------------------------------------------------------------------------- replicate

-- replicate(model, mesh.dp, {zero = 1}): the model, or the list of modules. Every rank along the
-- mesh has all of the parameters while it computes, and its own part of the batch, which
-- `distribute` shards; gradients are reduced over the ranks: data parallel, as in
-- torch.distributed._composable.replicate. Over several dimensions: mesh{"a", "b"}.
--
--   zero  0   parameters, gradients and the optimizer's state are on all ranks (DDP)
--         1   each rank keeps and updates its part of the parameters, with its part of the
--             optimizer's state; they are gathered once a step. Each batch's gradients are reduced
--             into the part that the rank keeps; with reduce_each_batch = false the sum over several
--             batches is whole until it is reduced, once
--         2   each batch's gradients are reduced, whatever reduce_each_batch says: they are whole
--             only within a batch's backward
--
-- With zero the last mesh dimension shards, and shard_dim is fully_shard's: it is fully sharded,
-- but gathered parameters stay for the backward. Each module of a ModuleList is a unit, and so is
-- the rest of the model. The options of mixed_precision are allowed too.
local REPLICATE_OPTIONS = base.option_names("replicate", {"zero", "shard_dim", table.unpack(base.policy_keys)})

-- The modules of the ModuleLists below that are in no unit yet.
local function members_of_lists(module, found)
  local children = base.children(module)
  for i = 2, #children, 2 do
    if core.taken(children[i]) > 0 then
      -- it has a unit
    elseif base.class(module) == base.ModuleList then
      found[#found + 1] = children[i]
    else
      members_of_lists(children[i], found)
    end
  end
  return found
end

--- replicate(what, mesh, options?): every rank has all parameters while it computes, and its part of the batch.
---   zero = 0: 1: each rank keeps and updates a part of the parameters and of the optimizer's state; 2: of the
---     gradients, too
---   shard_dim: see `fully_shard`, with `zero`
---   param_dtype: see `mixed_precision`
---   reduce_dtype: see `mixed_precision`
---   output_dtype: see `mixed_precision`
---   cast_forward_inputs: see `mixed_precision`
plan.replicate = core.unwatched(function(what, mesh, options)
  if base.begun then fail("replicate comes before train and infer") end
  core.look_anew()
  local modules, line = modules_of(what, "replicate"), core.line()
  options = base.options(options, "replicate", REPLICATE_OPTIONS)
  local zero = base.integer(options.zero or 0, "replicate's zero", 0, 2)
  local dim = dim_option(options, "replicate")
  if dim and zero == 0 then fail("replicate cuts nothing along shard_dim, unless zero is 1 or 2") end
  local shards, copies = {}, (base.mesh_dimensions(mesh, "replicate"))
  if zero > 0 then shards, copies = mesh_of(mesh, "replicate") end
  local function unit_of(list)
    make_unit(list, {who = "replicate", line = line, shards = shards, copies = copies,
      reshards = false, dim = dim, once = zero > 0, reduces_each = zero == 2})
  end
  for i = 1, zero > 0 and #modules or 0 do
    for _, member in ipairs(members_of_lists(modules[i], {})) do unit_of{member} end
  end
  unit_of(modules)
  set_policies(modules, options, "replicate")
  return what
end)

-- --------------------------------------------------------------------------------- into the graph

-- The unit of a module that was given to a call; the graph has the module under this index.
function base.unit_of(module, index)
  local call = call_of[module]
  if not call.unit then
    local shards, copies = base.dims_in_graph(call.shards), base.dims_in_graph(call.copies)
    local again = call.reshards and base.dims_in_graph(call.shards, call.reshards ~= true) or {}
    call.unit = core.add_unit(index, call.who, call.line, shards, copies, again, call.dim,
      call.once, call.reduces_each)
  end
  return call.unit
end

-- An error if there are units: `who` makes programs without any.
function base.refuse_units(who)
  local call = calls[1]
  if not call then return end
  fail("%s keeps parameters where parallelize puts them, and gathers none: line %d has %s, which is for programs "
    .. "that train: leave it out", who, call.line, call.who)
end

-- An error if a module of a unit is not in the model; called when the graph has the model.
function base.check_units()
  for _, call in ipairs(calls) do
    for _, module in ipairs(call.modules) do
      if not base.index(module) then
        fail("%s of line %d is for a %s that is not part of the model", call.who, call.line,
          base.class_name(module))
      end
    end
  end
end
