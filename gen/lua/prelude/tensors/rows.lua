-- rows.lua: a function for each operator of the table (ops.h) for which no earlier file has one. So
-- a new row is a new function:
--
--   F.NAME(a, b, ...[, {scalar =, NUMBER =, dim = or dims =, keep =, sizes = {E = 8}}])
--
-- NUMBER: the row's numbers by name. dims: the dimensions of a capital letter. sizes: of the
-- output's letters that no input has.
local core, base = ...
local misfit = base.misfit

local MAX_INPUTS = 8

base.row_options = {} -- by name of a function made here: its named arguments

local function checked_sizes(row, given)
  local sizes = {}
  if given == nil then return sizes end
  if base.kind(given) ~= "table" then misfit("sizes are as in {E = 8}, not %s", base.a(given)) end
  for letter, size in pairs(given) do
    if type(letter) ~= "string" or not string.find(letter, "^%a$") then
      misfit("sizes are of letters, as in {E = 8}")
    end
    if not string.find(row.rule, letter, 1, true) then
      misfit("its rule, %s, has no dimension %s", row.rule, letter)
    end
    sizes[letter] = base.whole(size, "the size of " .. letter, 1, 1 << 40)
  end
  return sizes
end

local function checked_dims(row, options, first)
  local dims = options.dims
  if dims == nil then dims = options.dim end
  if dims == nil then
    if string.find(row.rule, "...%u") then misfit("name the dimension: dim = 0, say") end
    return nil
  end
  base.tensor(first, "the first argument")
  return (base.dimensions(core.shape(first), dims))
end

-- The attributes of struct op, without the inputs.
local function attributes(row, options, first)
  local a = {scalar = 0, keep = options.keep, dims = checked_dims(row, options, first),
    sizes = checked_sizes(row, options.sizes)}
  if options.scalar ~= nil then
    if type(options.scalar) ~= "number" or options.scalar ~= options.scalar then
      misfit("the scalar must be a number, not %s", base.a(options.scalar))
    end
    a.scalar = options.scalar
  end
  for name in string.gmatch(row.numbers, "[%w_]+") do
    if options[name] == nil then misfit("say %s =, a whole number", name) end
    a[name] = base.whole(options[name], name)
  end
  return a
end

local function function_of(row)
  local known = {"scalar", "dim", "dims", "keep", "sizes"}
  for name in string.gmatch(row.numbers, "[%w_]+") do known[#known + 1] = name end
  base.row_options[row.name] = known
  return function(...)
    local given, tensors, options = table.pack(...), {}, {}
    local n = given.n
    if n > 0 and base.kind(given[n]) == "table" then
      options = base.options_of(given[n], known)
      n = n - 1
    end
    if n > MAX_INPUTS then misfit("it takes at most %d tensors, not %d", MAX_INPUTS, n) end
    for i = 1, n do tensors[i] = base.tensor(given[i], string.format("argument %d", i)) end
    return core.append(row.name, tensors, attributes(row, options, tensors[1]))
  end
end

-- Operators with a function of another name, which checks the arguments that the rule leaves open.
local elsewhere = {attention = true, cached_attention = true, cached_attention_parts = true, cached_latent_attention = true, recent = true, running_sum = true, running_max = true, all_tokens = true, recall_state = true, keep_state = true, documents = true, index_within = true,
  linear_bf16 = true, linear_bf16_transposed = true, linear_int8 = true, linear_int8_transposed = true,
  embedding_int8 = true, from_int8 = true, from_nf4 = true, merge = true, merge_logs = true, amax_abs = true, float8_scale = true, inverse_scale = true, to_float8 = true, uniform_like = true, normal_like = true, running = true, in_training = true, batch_share = true, scan_take = true, scan_put = true, scan_stack = true, eigh = true, svd = true}

--- # Operators as such
--- Operators of gen/ir/ops.h for which nothing else is a function. They take tensors, then a table of named arguments:
--- `scalar` a number, `dim` or `dims` the dimensions of a capital letter, `keep`, `sizes` of letters that no input has.
--- F.scale(...): a tensor times the number `scalar`.
--- F.power(...): a tensor to the power of the number `scalar`.
--- F.gelu_tanh(...): PyTorch's approximation of gelu.
--- F.every(...): every `step`-th element along `dim`.
--- F.spread(...): elements `step` apart along `dim`, zeros between.
--- F.place(...): elements at indices of a new dimension, zeros elsewhere.
--- F.rotary_pairs(...): `F.rotary` of neighbours.
--- F.count_places(...): how many places name each expert; `scalar` bounds the rows of a rank.
--- F.dispatch(...): the rows of tokens, by expert.
--- F.combine(...): the sum of each token's rows.
--- F.grouped_linear(...): rows by expert times the expert's weight.
for _, row in ipairs(core.rows()) do
  local takes_tensors = string.sub(row.rule, 1, 2) ~= "->"
  if takes_tensors and not base.raw[row.name] and not elsewhere[row.name] then
    base.method(row.name, function_of(row))
  end
end
