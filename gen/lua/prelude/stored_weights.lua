-- stored_weights.lua: weights of a program that only reads them, stored as bfloat16 or in blocks of 8 bits
-- (runtime/weight_blocks.h), and computed with as floats.
local core, base = ...
local append, fail, view = core.append, base.fail, base.view

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

-- x times a weight, [out, in] or, if it is `turned`, [in, out]; nil for a weight that is not stored so.
function base.stored_product(x, weight, turned)
  local stored = core.stored(weight)
  if not stored then return nil end
  local name = (stored == "int8" and "linear_int8" or "linear_bf16") .. (turned and "_turned" or "")
  local shape = core.shape(x)
  local n, wide = #shape, base.wide(x)
  if n ~= 3 then wide = view(wide, {1, base.elements(shape) // shape[n], shape[n]}) end
  local y = append(name, {wide, weight})
  if n ~= 3 then
    local made = table.move(shape, 1, n - 1, 1, {})
    made[n] = core.shape(y)[3]
    y = view(y, made)
  end
  return base.narrowed(y, x)
end

-- The rows of a table in blocks; nil for another one.
function base.stored_rows(weight, index)
  if core.stored(weight) ~= "int8" then return nil end
  local shape = core.shape(index)
  local n = base.elements(shape)
  local y = append("embedding_int8", {weight, #shape == 2 and index or view(index, {1, n})})
  if #shape == 2 then return y end
  local made = table.move(shape, 1, #shape, 1, {})
  made[#made + 1] = core.shape(y)[3]
  return view(y, made)
end
