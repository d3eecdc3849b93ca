-- stored_weights.lua: weights of a program that only reads them, stored as bfloat16 or in blocks of 8 bits
-- (runtime/base/weight_blocks.h), and computed with as floats.
local core, base = ...
local append, fail, view = core.append, base.fail, base.view

local BLOCK_NUMBERS = 32 -- weight_blocks.h
local TYPES = {float32 = true, bfloat16 = true, int8 = true}

-- When the layouts of parameters are known: the model's matrices are stored as the type says, the value
-- of the option `what`.
function base.store_weights(model, type, what)
  if not TYPES[type] then
    fail('%s is "float32", "bfloat16" or "int8", not %s', what, base.a(type))
  end
  if type == "float32" then return end
  local done = {}
  local function store(module)
    if done[module] then return end
    done[module] = true
    local class = base.class(module)
    if class == base.Linear or class == base.Conv1D or class == base.Embedding then
      core.store_as(module.weight, type)
    end
    local children = base.children(module)
    for i = 2, #children, 2 do store(children[i]) end
  end
  store(model)
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
  local stored = core.stored(weight)
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
  if core.stored(weight) ~= "int8" then return nil end
  local shape = core.shape(index)
  local n = base.elements(shape)
  local y = append("embedding_int8", {weight, #shape == 2 and index or view(index, {1, n})})
  return in_rows(y, shape, #shape)
end
