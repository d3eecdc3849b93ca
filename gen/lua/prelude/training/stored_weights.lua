-- stored_weights.lua: weights that a program only reads, stored as bfloat16 or in blocks of 8 or 4 bits
-- (runtime/base/weight_blocks.h), and computed with as floats: all of a program that generates, and frozen ones of
-- one that trains.
local core, base, plan = ...
local append, fail, view = core.append, base.fail, base.view

local BLOCK_NUMBERS = 32 -- of int8: weight_blocks.h
local TYPES = {float32 = true, bfloat16 = true, int8 = true}
local FROZEN_TYPES = {float32 = true, bfloat16 = true, int8 = true, nf4 = true}

local reads_stored = false -- products read weights as they are stored

-- Calls use(module) with each module, once.
local function each_module(model, use)
  local done = {}
  local function visit(module)
    if done[module] then return end
    done[module] = true
    use(module)
    local children = base.children(module)
    for i = 2, #children, 2 do visit(children[i]) end
  end
  visit(model)
end

base.each_module = each_module

local function store(weight, type, tables)
  if not core.stored(weight) then core.store_as(weight, type, tables) end
end

-- When the layouts of parameters are known: the model's matrices are stored as the type says, the value
-- of the option `what`.
function base.store_weights(model, type, what)
  if not TYPES[type] then
    fail('%s is "float32", "bfloat16" or "int8", not %s', what, base.a(type))
  end
  if type == "float32" then return end
  reads_stored = true
  each_module(model, function(module)
    local class = base.class(module)
    if class == base.Linear or class == base.Conv1D or class == base.Embedding then store(module.weight, type) end
  end)
end

local OPTIONS = base.option_names("store_frozen", {"skip"})

-- By module: how its frozen weight is stored; and the modules in order.
local asked, order = {}, {}

-- The tables of NF4 blocks: two numbers, 16 values, 256 sizes, and the size of each group of 256 blocks.
local NUMBERS, TABLES, GROUP = 64, 274, 256

local function tables_for(weight)
  local shape = core.shape(weight)
  local groups = (shape[1] * shape[2] // NUMBERS + GROUP - 1) // GROUP
  local tables = core.parameter("store_frozen", {TABLES + groups + 1}, "constant", 0.0, 0.0)
  core.make_buffer(tables)
  return tables
end

-- The shapes of tables of embeddings: a Linear of such a shape is the model's head.
local function tables_of(model)
  local shapes = {}
  each_module(model, function(module)
    if base.class(module) ~= base.Embedding or module.weight == nil then return end -- nil: another module of an archive has it
    shapes[table.concat(core.shape(module.weight), " ")] = true
  end)
  return shapes
end

-- The modules that the patterns name.
local function named_by(model, patterns)
  local named = {}
  for _, pattern in ipairs(patterns) do
    local list = core.matching({model}, string.sub(pattern, 1, 2) == "**" and pattern or "**." .. pattern)
    if #list == 0 then base.nothing_matches(pattern, model) end
    for _, module in ipairs(list) do named[module] = true end
  end
  return named
end

base.named_by = named_by

--- # Stored weights
--- store_frozen(model, dtype, options?): the frozen matrices of Linear and Conv1D modules are stored as `"bfloat16"`
--- (those of Embedding modules, too), as `"int8"`, in blocks of 32 numbers and a scale, or as `"nf4"`, QLoRA's 4 bits
--- with double quantization; the model computes with the numbers that are stored. A matrix whose rows are no whole
--- blocks, of 32 or 64 numbers, is bfloat16.
---   skip: a pattern of modules that stay as they are, or a list; by default, but with bfloat16, the head: a Linear of
---     an Embedding's shape
function plan.store_frozen(model, dtype, options)
  base.expect(model, "module", "the first argument of store_frozen")
  if not FROZEN_TYPES[dtype] then
    fail('store_frozen: the type is "float32", "bfloat16", "int8" or "nf4", not %s', base.a(dtype))
  end
  options = base.options(options, "store_frozen", OPTIONS)
  if base.begun then fail("store_frozen comes before train and infer") end
  local skips = options.skip ~= nil and named_by(model, base.patterns(options.skip, "store_frozen's skip"))
  local heads = not skips and dtype ~= "bfloat16" and tables_of(model) or {}
  each_module(model, function(module)
    local class = base.class(module)
    if class ~= base.Linear and class ~= base.Conv1D and (class ~= base.Embedding or dtype ~= "bfloat16") then return end
    if module.weight == nil or skips and skips[module] then return end
    if class == base.Linear and heads[table.concat(core.shape(module.weight), " ")] then return end
    if not asked[module] then order[#order + 1] = module end
    local has_blocks = core.shape(module.weight)[2] % NUMBERS == 0
    module.weight_nested = dtype == "nf4" and has_blocks and tables_for(module.weight) or nil
    asked[module] = dtype
  end)
  return model
end

-- The same, when the layouts of parameters are known.
function base.store_frozen_weights()
  for _, module in ipairs(order) do
    if asked[module] ~= "float32" and core.is_frozen(module.weight) then
      store(module.weight, asked[module], module.weight_nested)
    end
  end
end

-- A row as its blocks: ranks may have any number of them.
local function in_blocks(x, rows, width)
  return view(x, {rows[1], rows[2], width // BLOCK_NUMBERS, BLOCK_NUMBERS})
end

-- y, [a, b, width] or [a, b, blocks, numbers], in the first `outer` dimensions of a shape, and a row.
local function in_rows(y, shape, outer)
  local has = core.shape(y)
  if #has == 3 and outer == 2 then return y end
  local made = table.move(shape, 1, outer, 1, {})
  made[outer + 1] = has[3] * (has[4] or 1)
  return view(y, made)
end

-- x times a weight, [out, in] or, if it is `transposed`, [in, out]; nil for a weight that is not stored so.
function base.stored_product(x, weight, transposed)
  local stored = reads_stored and core.stored(weight)
  if not stored then return nil end
  local name = (stored == "int8" and "linear_int8" or "linear_bf16") .. (transposed and "_transposed" or "")
  local shape = core.shape(x)
  local n, wide = #shape, base.wide(x)
  local rows = n == 3 and {shape[1], shape[2]} or {1, base.elements(shape) // shape[n]}
  if stored == "int8" and not transposed then
    wide = in_blocks(wide, rows, shape[n])
  elseif n ~= 3 then
    wide = view(wide, {rows[1], rows[2], shape[n]})
  end
  return base.narrowed(in_rows(append(name, {wide, weight}), shape, n - 1), x)
end

-- The number of outputs of a weight.
function base.outputs(weight, transposed)
  local size = core.shape(weight)[transposed and 2 or 1]
  return transposed and core.stored(weight) == "int8" and size * BLOCK_NUMBERS or size
end

-- The rows of a table in blocks; nil for another one.
function base.stored_rows(weight, index)
  if not reads_stored or core.stored(weight) ~= "int8" then return nil end
  local shape = core.shape(index)
  local n = base.elements(shape)
  local y = append("embedding_int8", {weight, #shape == 2 and index or view(index, {1, n})})
  return in_rows(y, shape, #shape)
end
