-- context.lua: sequences that are cut over ranks: how their attention gets to all keys, and the order of
-- their tokens.
local core, base, plan = ...
local fail, misfit, raw = base.fail, base.misfit, base.raw

local OPTIONS = base.option_names("context_parallel", {"method", "balance", "sequence"})
local METHODS = {ring = true, allgather = true, ulysses = true}

local asked -- what the plan's call says

-- The method of each dimension: of a list, or one for the one dimension.
local function methods_of(method, dims)
  local list = base.kind(method) == "table" and method or {method}
  local seen = {}
  for i = 1, #dims do
    local m = rawget(list, i)
    if base.kind(m) ~= "string" or not METHODS[m] then
      fail('context_parallel\'s method is "ring", "allgather" or "ulysses"%s, not %s',
        #dims > 1 and ", one for each dimension of the mesh" or "", base.a(m))
    end
    if seen[m] then fail('context_parallel takes the method "%s" for one dimension of the mesh, not for two', m) end
    seen[m] = dims[i]
  end
  if #list > #dims then fail("context_parallel is given %d methods for %d dimensions of the mesh", #list, #dims) end
  return seen
end

-- In so many parts the order of the tokens deals the sequence out: Ulysses cuts each of them further.
local function parts_of(dims, methods)
  local parts = 1
  for _, dim in ipairs(dims) do
    if dim ~= methods.ulysses or #dims == 1 then parts = parts * base.ranks_along(dim) end
  end
  return parts
end

-- context_parallel(model, mesh.cp, {method = "ring", balance = "headtail", sequence = 1}): the model's
-- attention, where the sequences of its inputs are cut over the dimension: dimension `sequence` of each. Over
-- several dimensions, mesh{"cp", "node"}, each has its method: {"ring", "ulysses"}.
--- # Context parallel
--- context_parallel(module, mesh, options?): how the model's attention gets to all keys where sequences are cut over
--- `mesh`. Gives the model.
---   method = "ring": `"ring"`, `"allgather"` or `"ulysses"`; over several dimensions of the mesh a list, one for
---     each
---   balance: `"headtail"`: the order of tokens in which each rank has as much of a causal attention to compute
---   sequence = 1: the dimension of the inputs that is cut
plan.context_parallel = core.unwatched(function(module, mesh, options)
  base.expect(module, "module", "the first argument of context_parallel")
  if base.begun then fail("context_parallel comes before train and infer") end
  if asked then fail("context_parallel is called twice: line %d has cut the sequences", asked.line) end
  local dims = base.mesh_dimensions(mesh, "context_parallel")
  options = base.options(options or {}, "context_parallel", OPTIONS)
  local method, balance = options.method, options.balance
  if method == nil and #dims == 1 then method = "ring" end
  local methods, ranks = methods_of(method, dims), 1
  for _, dim in ipairs(dims) do ranks = ranks * base.ranks_along(dim) end
  if balance ~= nil and balance ~= "headtail" then
    fail('context_parallel\'s balance is "headtail", or it is left out; it is not %s', base.a(balance))
  end
  if methods.ring and base.ranks_along(methods.ring) > 256 then
    fail("a ring has at most 256 ranks, and this dimension has %d", base.ranks_along(methods.ring))
  end
  local sequence = base.integer(options.sequence or 1, "context_parallel's sequence", 0, 7)
  local parts = parts_of(dims, methods)
  for name, dim in pairs(methods) do methods[name] = base.ranks_along(dim) > 1 and dim or nil end
  asked = {dims = dims, ranks = ranks, methods = methods, parts = parts, balance = balance and parts > 1,
    sequence = sequence, line = core.line(), orders = {}, of_queries = {}, of_keys = {}, natural = setmetatable({}, {__mode = "k"})}
  return module
end)

-- An error if sequences are cut: `who` has caches of whole ones.
function base.refuse_context(who)
  if asked and asked.ranks > 1 then
    fail("%s has caches of whole sequences, and line %d cuts them: leave out context_parallel", who, asked.line)
  end
end

-- Whether the model's attention goes over sequences that are cut.
function base.has_cut_attention() return asked ~= nil and asked.is_met == true end

local WHOLE = core.Replicate()

-- Placed along each of the dimensions: by a method of its own, or as `other`.
local function over(x, other, why, own)
  local placed = {}
  for _, dim in ipairs(asked.dims) do placed[dim] = other end
  for method, placement in pairs(own or {}) do
    if asked.methods[method] then placed[asked.methods[method]] = placement end
  end
  return core.redistribute(x, base.placed_in_graph(placed), nil, nil, why)
end

local function reordered(x, dim, order) return core.append("index_select", {x, order}, {dims = {dim}}) end

-- ------------------------------------------------------------------------------- the order of tokens

-- Head and tail: the first part of the sequence has two halves, one at each end of the sequence, the second
-- part the halves next to these, and so on: with a causal mask all ranks then do as much. The tokens in
-- their new order, as torch.chunk cuts it: the n numbers of their places.
local function head_and_tail(n, ranks)
  local part, i = (n + ranks - 1) // ranks, base.index_row(n)
  local first = (part + 1) // 2 -- at the head
  -- `first` tokens of part p follow those of the parts before it, and its other tokens precede theirs. The last part
  -- has the tokens that are left in the middle, if it has fewer.
  local p = core.append("div", {i, raw.full({}, part)}) -- whole
  local at = raw.sub(i, raw.mul(p, part))
  local head, tail = raw.add(raw.mul(p, first), at), raw.sub(raw.add(at, n - part), raw.mul(p, part - first))
  return raw.where(raw.logical_or(raw.lt(at, first), raw.ge(p, n // part)), head, tail)
end

local function is_placed_there(placed)
  local is = false
  for _, dim in ipairs(asked.dims) do is = is or placed[dim] ~= nil end
  return is
end

-- Whether this input of the batch, placed so, gets its order when it is read: then it is placed without the
-- sequence's dimensions of the mesh first.
function base.is_reordered(shape, placed)
  return asked and asked.balance and #shape > asked.sequence and is_placed_there(placed)
end

-- Its placements along the sequence's dimensions of the mesh, and the others.
function base.context_of(placed)
  local own = {}
  for _, dim in ipairs(asked.dims) do own[dim] = placed[dim] end
  return own
end

-- Tells of an input that stays in the order of the sequence, and has as many elements along it as inputs that do not.
function base.tell_of_order(name, shape, placed)
  if not asked or not asked.balance or is_placed_there(placed) then return end
  local n = shape[asked.sequence + 1]
  if n and asked.orders[n] then
    core.note(string.format("the batch's '%s' has %d elements along dimension %d, and is not cut as the tokens are: it stays in "
      .. "the order of the sequence, and theirs is context_parallel's balance", name, n, asked.sequence))
  end
end

function base.without_context(placed)
  local rest = {}
  for dim, placement in pairs(placed) do rest[dim] = placement end
  for _, dim in ipairs(asked.dims) do rest[dim] = nil end
  return rest
end

-- An input of the batch in the new order, placed so.
function base.in_order(x, placed)
  local dim, why = asked.sequence, "the order of the sequence"
  local n = core.shape(x)[dim + 1]
  if not asked.orders[n] then
    -- Each is computed as it is needed: of one for all, ranks would compute parts, and send them to each other.
    asked.orders[n] = over(head_and_tail(n, asked.parts), base.shard(0), why)
    asked.of_queries[n] = over(head_and_tail(n, asked.parts), base.shard(0), why, {ulysses = WHOLE})
    asked.of_keys[n] = over(head_and_tail(n, asked.parts), WHOLE, why)
  end
  local there = core.redistribute(reordered(x, dim, asked.orders[n]), base.placed_in_graph(placed), nil, nil, why)
  asked.natural[there] = x
  return there
end

-- The tokens of whole sequences, in their own order, on each rank; and, of tokens in a new order, a function that
-- brings values made of them to that order.
function base.whole_sequences(x)
  local natural = asked and asked.natural[x]
  if not natural then return asked and over(x, WHOLE, "whole sequences") or x end
  local dim = asked.sequence
  local order = asked.orders[core.shape(x)[dim + 1]]
  return natural, function(y) return over(reordered(y, dim, order), base.shard(dim), "the order of the sequence") end
end

--- F.positions(input): of tokens `[batch, sequence]`: the place of each in its sequence, `[sequence]`, also where
--- sequences are cut and reordered.
base.method("positions", function(input)
  base.tensor(input, "the tokens")
  local shape = core.shape(input)
  if #shape == 0 then misfit("it takes tokens [batch, sequence], not a number") end
  return asked and asked.natural[input] and asked.orders[shape[#shape]] or base.index_row(shape[#shape])
end)

-- ------------------------------------------------------------------------------------------ attention

local SEQUENCE, HEADS = 2, 1

-- So often keys and values are repeated that their heads divide, if they can.
local function times(heads, groups)
  local least, ranks = heads // groups, base.ranks_along(asked.methods.ulysses)
  for n = 1, least do
    if least % n == 0 and groups * n % ranks == 0 then return n end
  end
  return least
end

local function repeated(x, n)
  local s = core.shape(x)
  if n == 1 then return x end
  x = raw.expand(base.view(x, {s[1], s[2], 1, s[3], s[4]}), {s[1], s[2], n, s[3], s[4]})
  return base.view(x, {s[1], s[2] * n, s[3], s[4]})
end

-- The names of the methods, as a plan writes them.
local function methods_text()
  local list = {}
  for _, method in ipairs{"ring", "allgather", "ulysses"} do
    if asked.methods[method] then list[#list + 1] = method end
  end
  return table.concat(list, " and ")
end

-- An operand with a dimension of keys, gathered; a ring has taken its blocks before that.
local function gathered(x, dim, why, ulysses)
  if asked.methods.ring then x = over(x, WHOLE, why, {ring = base.shard(dim), ulysses = ulysses}) end
  return over(x, WHOLE, why, {ulysses = ulysses})
end

-- Attention of queries and keys that are cut: nil where no sequence is; else a table with functions that place what
-- goes by queries and what goes by keys, along their dimension of the sequence; with the places of queries
-- and of keys, if the order is not that of the sequence; and with the dimension of a ring.
function base.cut_attention(q, k, how)
  if not asked or asked.ranks == 1 then return nil end
  asked.is_met = true
  local why, c = "attention over " .. methods_text(), {balanced = asked.balance}
  local n = core.shape(q)[3]
  -- Turn 1: other dimensions of the mesh cut heads first.
  local by_heads = base.shard(HEADS, base.has_other_dimensions(asked.dims) and 1 or 0)
  function c.queries(x, dim) return over(x, base.shard(dim), why, {ulysses = WHOLE}) end
  function c.keys(x, dim) return gathered(x, dim, why, WHOLE) end
  function c.heads(q, k, v)
    local more = asked.methods.ulysses and times(core.shape(q)[2], core.shape(k)[2]) or 1
    return over(q, base.shard(SEQUENCE), why, {ulysses = by_heads}),
      gathered(repeated(k, more), SEQUENCE, why, by_heads), gathered(repeated(v, more), SEQUENCE, why, by_heads)
  end
  function c.back(y) return over(y, base.shard(SEQUENCE), why) end
  -- The name of an input of x whose elements are in the order of the sequence, while x's tokens are not; or nil.
  local function in_sequence(x, tokens)
    local order = asked.balance and asked.orders[tokens]
    return order and core.in_sequence(x, tokens, order, asked.of_queries[tokens], asked.of_keys[tokens])
  end
  function c.tell_of_order(x)
    local tokens = core.shape(x)[SEQUENCE + 1]
    local name = in_sequence(x, tokens)
    if not name then return end
    core.note(string.format("queries or keys are made of '%s', whose %d elements are in the order of the sequence; that of the tokens "
      .. "is context_parallel's balance: tokens:positions() has positions in it", name, tokens))
  end
  -- Fails if the last dimension of x is that of the tokens.
  function c.must_follow(x, what)
    local shape = core.shape(x)
    local tokens = shape[#shape]
    local name = in_sequence(x, tokens)
    if not name then return end
    misfit("%s made of '%s', whose %d elements are in the order of the sequence; that of the tokens is context_parallel's "
      .. "balance: make it of inputs of the batch that are cut as the tokens are, or leave out balance", what, name, tokens)
  end
  if asked.balance and (how.causal or how.window) then
    c.places, c.key_places = asked.of_queries[n], asked.of_keys[n]
    if not c.places or core.shape(k)[3] ~= n then
      misfit("the sequences of line %d are in another order, and no input of the batch has %d tokens that are cut "
        .. "there: leave out balance", asked.line, n)
    end
  end
  c.ring = asked.methods.ring and base.dims_in_graph{asked.methods.ring}[1] + 1 or nil
  if c.ring and core.shape(k)[3] ~= n then misfit("a ring goes around with the keys of the queries: %d, not %d", n, core.shape(k)[3]) end
  return c
end
