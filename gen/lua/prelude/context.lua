-- context.lua: sequences that are cut over ranks: how their attention gets to all keys, and the order of
-- their tokens.
local core, base, plan = ...
local fail, misfit, raw = base.fail, base.misfit, base.raw

local OPTIONS = {"method", "balance", "sequence"}
local METHODS = {ring = true, allgather = true, ulysses = true}

local asked -- what the plan's call says

-- context_parallel(model, mesh.cp, {method = "ring", balance = "headtail", sequence = 1}): the model's
-- attention, where the sequences of its inputs are cut over the dimension: dimension `sequence` of each.
plan.context_parallel = core.unwatched(function(module, mesh, options)
  base.expect(module, "module", "the first argument of context_parallel")
  if base.begun then fail("context_parallel comes before train and infer") end
  if asked then fail("context_parallel is called twice: line %d has cut the sequences", asked.line) end
  local dim, ranks = base.one_dimension(mesh, "context_parallel")
  options = base.options(options or {}, "context_parallel", OPTIONS)
  local method, balance = options.method, options.balance
  if method == nil then method = "ring" end
  if base.kind(method) ~= "string" or not METHODS[method] then
    fail('context_parallel\'s method is "ring", "allgather" or "ulysses", not %s', base.a(method))
  end
  if balance ~= nil and balance ~= "headtail" then
    fail('context_parallel\'s balance is "headtail", or it is left out; it is not %s', base.a(balance))
  end
  if method == "ring" and ranks > 256 then fail("a ring has at most 256 ranks, and this dimension has %d", ranks) end
  local sequence = base.integer(options.sequence or 1, "context_parallel's sequence", 0, 7)
  asked = {dim = dim, ranks = ranks, method = method, balance = balance and ranks > 1, sequence = sequence,
    line = core.line(), orders = {}, natural = setmetatable({}, {__mode = "k"})}
  return module
end)

local function over(x, placement, why)
  return core.redistribute(x, base.placed_in_graph{[asked.dim] = placement}, nil, nil, why)
end

local function reordered(x, dim, order) return core.append("index_select", {x, order}, {dims = {dim}}) end

-- ------------------------------------------------------------------------------- the order of tokens

-- Head and tail: the first part of the sequence has two halves, one at each end of the sequence, the second
-- part the halves next to these, and so on: with a causal mask all ranks then do as much. The tokens in
-- their new order, as torch.chunk cuts it: the n numbers of their places.
local function head_and_tail(n, ranks)
  local part, head, tail, places = (n + ranks - 1) // ranks, 0, n, {}
  local function run(first, size)
    if size > 0 then places[#places + 1] = raw.add(base.index_row(size), first) end
  end
  for rank = 0, ranks - 1 do
    local size = math.max(0, math.min(part, n - rank * part))
    local first = (size + 1) // 2
    run(head, first)
    head, tail = head + first, tail - (size - first)
    run(tail, size - first)
  end
  return raw.cat(places, 0)
end

-- Whether this input of the batch, placed so, gets its order when it is read: then it is placed without the
-- sequence's dimension of the mesh first.
function base.is_reordered(shape, placed)
  return asked and asked.balance and placed[asked.dim] and #shape > asked.sequence
end

function base.without_context(placed)
  local rest = {}
  for dim, placement in pairs(placed) do rest[dim] = dim ~= asked.dim and placement or nil end
  return rest
end

function base.context_of(placed) return placed[asked.dim] end

-- An input of the batch in the new order, cut.
function base.in_order(x, placement)
  local dim = asked.sequence
  local n = core.shape(x)[dim + 1]
  asked.orders[n] = asked.orders[n] or over(head_and_tail(n, asked.ranks), base.shard(0), "the order of the sequence")
  local there = over(reordered(x, dim, asked.orders[n]), placement, "the order of the sequence")
  asked.natural[there] = x
  return there
end

-- Of tokens in a new order: the tokens as they were, and a function that gives what is made of them that order;
-- else the tokens, and no function.
function base.natural_order(x)
  local natural = asked and asked.natural[x]
  if not natural then return x end
  local dim = asked.sequence
  local order = asked.orders[core.shape(x)[dim + 1]]
  return natural, function(y) return over(reordered(y, dim, order), base.shard(dim), "the order of the sequence") end
end

-- x:positions(): of tokens [batch, sequence], the place of each of a sequence in it: [sequence].
base.method("positions", function(input)
  base.tensor(input, "the tokens")
  local shape = core.shape(input)
  if #shape == 0 then misfit("it takes tokens [batch, sequence], not a number") end
  return asked and asked.natural[input] and asked.orders[shape[#shape]] or base.index_row(shape[#shape])
end)

-- ------------------------------------------------------------------------------------------ attention

local WHOLE, SEQUENCE, HEADS = core.Replicate(), 2, 1

-- So often keys and values are repeated that their heads divide, if they can.
local function times(heads, groups)
  local least = heads // groups
  for n = 1, least do
    if least % n == 0 and groups * n % asked.ranks == 0 then return n end
  end
  return least
end

local function repeated(x, n)
  local s = core.shape(x)
  if n == 1 then return x end
  x = raw.expand(base.view(x, {s[1], s[2], 1, s[3], s[4]}), {s[1], s[2], n, s[3], s[4]})
  return base.view(x, {s[1], s[2] * n, s[3], s[4]})
end

-- Attention of queries and keys that are cut: nil where no sequence is; else a table with functions that place what
-- goes by queries and what goes by keys, along their dimension of the sequence; with the places, if the order
-- is not that of the sequence; and with the dimension of a ring.
function base.cut_attention(q, k, how)
  if not asked or asked.ranks == 1 then return nil end
  local why, c = "attention over " .. asked.method, {}
  local n, whole = core.shape(q)[3], asked.method == "ulysses"
  local function queries(x, dim) return over(x, whole and WHOLE or base.shard(dim), why) end
  local function keys(x, dim)
    if asked.method == "ring" then x = over(x, base.shard(dim), why) end -- its blocks
    return over(x, WHOLE, why)
  end
  c.queries, c.keys = queries, keys
  function c.heads(q, k, v)
    if not whole then return queries(q, SEQUENCE), keys(k, SEQUENCE), keys(v, SEQUENCE) end
    local by_heads = base.shard(HEADS, 1)
    local more = times(core.shape(q)[2], core.shape(k)[2])
    return over(q, by_heads, why), over(repeated(k, more), by_heads, why), over(repeated(v, more), by_heads, why)
  end
  function c.back(y) return over(y, base.shard(SEQUENCE), why) end
  if asked.balance and (how.causal or how.window) then
    c.order = asked.orders[n]
    if not c.order or core.shape(k)[3] ~= n then
      misfit("the sequences of line %d are in another order, and no input of the batch has %d tokens that are cut "
        .. "there: leave out balance", asked.line, n)
    end
  end
  c.ring = asked.method == "ring" and base.dims_in_graph{asked.dim}[1] + 1 or nil
  if c.ring and core.shape(k)[3] ~= n then misfit("a ring goes around with the keys of the queries: %d, not %d", n, core.shape(k)[3]) end
  return c
end
