-- The mesh of a plan, how the batch and the parameters are divided along its data parallel dimensions, and the
-- precision. args: the plan's settings, with those of mesh in lib/settings.lua.

local M = {}

function M.open(args)
  local p = {tp = args.tp, cp = args.cp, pp = args.pp}

  -- The ranks that share the batch are dp_replicate * dp_shard.
  p.dp_replicate = args.dp_replicate
  p.dp_shard = args.dp_shard or args.dp and math.tointeger(args.dp / p.dp_replicate) or 1
  p.dp = args.dp or p.dp_replicate * p.dp_shard
  if p.dp % p.dp_replicate ~= 0 then
    error("dp = " .. p.dp .. " ranks do not divide into dp_replicate = " .. p.dp_replicate
      .. " copies")
  elseif p.dp ~= p.dp_replicate * p.dp_shard then
    error("dp = " .. p.dp .. " ranks are not dp_replicate = " .. p.dp_replicate
      .. " times dp_shard = " .. p.dp_shard)
  end
  -- Experts are cut over ep of them; each of these experts is on dp / ep ranks.
  p.ep = args.ep
  if p.dp % p.ep ~= 0 then error("dp = " .. p.dp .. " ranks do not divide into groups of ep = " .. p.ep) end
  if p.ep > 1 and (p.dp_replicate > 1 or p.cp > 1) then error("ep is not taken together with dp_replicate or cp") end
  p.batch = args.batch or p.dp
  -- Of the cp ranks of a sequence, so many neighbours exchange heads; `context` says how attention gets to the keys of
  -- other groups.
  p.ulysses = args.ulysses
  if p.cp % p.ulysses ~= 0 then error("cp = " .. p.cp .. " ranks do not divide into groups of ulysses = " .. p.ulysses) end

  -- Whether what is gathered of the parameters is given up after the forward, and gathered again for
  -- the backward: always, never, or by default in the layers, but not at the end of the model, whose
  -- backward comes at once. A number: the layers keep parts, and gather among so many ranks.
  p.reshard = args.reshard_after_forward

  -- Of ranks that share the batch without being fully sharded: 1 and 2 cut what the optimizer keeps
  -- over them, 2 the gradients too (ZeRO).
  p.zero = args.zero
  if p.zero ~= 0 and args.dp_shard and args.dp_shard > 1 then
    error("zero = " .. p.zero .. " is for parameters that are whole, dp_shard = " .. args.dp_shard .. " cuts them: leave one out")
  end
  if p.zero ~= 0 and p.reshard ~= "default" then
    error("reshard_after_forward is for what is fully sharded; with zero = " .. p.zero
      .. " parameters are whole while they compute")
  end

  -- float32, or tf32: float32 whose products may round what they take; or bfloat16: weights and what
  -- the optimizer keeps of them are float32, and the model computes in bfloat16. float8: as bfloat16,
  -- and the products of the layers take float8; the head does not.
  p.dtype = args.dtype

  p.hybrid = p.dp_replicate > 1 and p.dp_shard > 1
  p.borrows = p.ep > 1
  -- Ranks of tp are neighbours in a node, those of pp the farthest from each other.
  local dimensions = {device = args.device, cluster = args.cluster, memory = args.memory}
  local function add(name, size) dimensions[#dimensions + 1] = {name, size} end
  if p.pp > 1 then add("pp", p.pp) end
  if p.hybrid then
    add("dp_replicate", p.dp_replicate)
    add("dp_shard", p.dp_shard)
  elseif p.borrows then
    add("efsdp", p.dp // p.ep)
    add("ep", p.ep)
  else
    add("dp", p.dp)
  end
  if p.cp > 1 then add("cp", p.cp // p.ulysses) end
  if p.ulysses > 1 then add("ulysses", p.ulysses) end
  add("tp", p.tp)
  p.mesh = device_mesh(dimensions)
  p.data = p.hybrid and p.mesh{"dp_replicate", "dp_shard"} or p.borrows and p.mesh{"efsdp", "ep"} or p.mesh.dp

  p.sequences = p.ulysses > 1 and p.mesh{"cp", "ulysses"} or p.cp > 1 and p.mesh.cp or nil

  -- The batch, cut in its first dimension, and its sequences.
  function p.distribute(inputs)
    if p.cp > 1 and not p.cuts_sequences then error("this plan cuts no sequences: leave out cp") end
    if p.pp > 1 and not p.has_stages then error("this plan has no stages: leave out pp") end
    distribute(inputs, p.data, (p.hybrid or p.borrows) and {Shard(0), Shard(0)} or Shard(0))
    return p.cp > 1 and distribute(inputs, p.sequences, p.ulysses > 1 and {Shard(1), Shard(1)} or Shard(1)) or inputs
  end

  -- How attention gets to the keys of sequences that are cut over cp.
  local method, balance = args.context, args.balance
  function p.context(model)
    p.cuts_sequences = true
    local methods = p.ulysses > 1 and {method, "ulysses"} or method
    if p.cp > 1 then context_parallel(model, p.sequences, {method = methods, balance = balance}) end
  end

  -- How many micro-batches a step has; nil: the schedule's file says it.
  function p.microbatches()
    if p.pp == 1 then return args.microbatches or 1 end
    return not args.schedule:find("%.csv$") and (args.microbatches or p.pp) or nil
  end

  -- The stages of a pipeline, if there are ranks for one.
  function p.pipeline(model)
    if p.pp == 1 then return end
    p.has_stages = true
    local schedule = args.schedule
    local microbatches = p.microbatches()
    pipeline(model, p.mesh.pp, { -- a file says the rest
      schedule = schedule, microbatches = microbatches, stages = microbatches and args.stages and p.pp * args.stages or nil,
    })
  end

  -- The units of parameters that are gathered, and whose gradients are reduced, together: the first
  -- modules, each layer, the last modules, and what is left. All must be modules of the model.
  function p.shard(model, first, layers, last)
    if p.zero ~= 0 then
      replicate(model, p.data, {zero = p.zero})
    elseif p.dp_shard > 1 or (p.cp > 1 and p.dp_replicate == 1) then
      -- The ranks that have the sequences in parts, or the experts.
      local also, over = p.cp > 1 and p.sequences or p.borrows and p.mesh.ep or nil, p.borrows and p.mesh.efsdp or p.data
      local at_once = {reshard_after_forward = p.reshard == "always", also = also}
      local inside = {reshard_after_forward = math.tointeger(p.reshard) or p.reshard ~= "never", also = also}
      if first then fully_shard(first, over, inside) end
      for _, layer in ipairs(layers) do fully_shard(layer, over, inside) end
      if last then fully_shard(last, over, at_once) end
      fully_shard(model, over, inside)
    end
    if p.dtype == "bfloat16" or p.dtype == "float8" then
      mixed_precision(model, {param_dtype = "bfloat16", reduce_dtype = "float32"})
    end
    if p.dtype == "float8" then
      for _, layer in ipairs(layers) do float8(layer, {recipe = args.float8}) end
    end
  end

  return p
end

return M
