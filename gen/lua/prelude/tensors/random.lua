-- random.lua: numbers that each step draws anew, with the names and arguments of torch. They depend on the seed, the step
-- and the place in the whole tensor: they are the same on every mesh, and in a layer that is recomputed.
local core, base = ...
local raw, method, define, append = base.raw, base.method, base.define, core.append
local misfit = base.misfit

-- One number for each element of x, by the operator; floats.
local function drawn(operator, x)
  core.unlike()
  return append(operator, {raw.detach(x)}, {stream = base.count_dropouts(1) - 1})
end

local function floats(input, dtype)
  local name = dtype == nil and core.type(input) or dtype
  if name ~= "float32" and name ~= "bfloat16" then misfit("it draws floats, not %s", base.a(name)) end
  return name
end

-- Whole numbers from low to high - 1.
local function whole(x, low, high, dtype)
  if high == nil then low, high = 0, low elseif low == nil then low = 0 end
  local most = 1 << 24 -- so many numbers are drawn
  low, high = base.whole(low, "low", -most, most), base.whole(high, "high", -most, most)
  if high <= low or high - low > most then misfit("high is above low, by at most 2^24: not %d and %d", low, high) end
  return base.typed(raw.add(raw.floor(raw.mul(drawn("uniform_like", x), high - low)), low), dtype == nil and "int64" or dtype)
end

--- # Random numbers
--- Each step draws them anew, from the plan's seed: the same on every mesh. A validation draws the same ones in each of its
--- batches.
--- F.randn_like(input, dtype?): of the tensor's sizes and type, with mean 0 and deviation 1.
method("randn_like", function(input, dtype, layout, device, pin_memory, memory_format)
  return raw.to(drawn("normal_like", input), floats(input, dtype))
end)
--- F.rand_like(input, dtype?): likewise, from 0 to 1.
method("rand_like", function(input, dtype, layout, device, pin_memory, memory_format)
  return raw.to(drawn("uniform_like", input), floats(input, dtype))
end)
--- F.randint_like(input, low, high, dtype?): likewise, whole numbers from `low` to `high - 1`.
method("randint_like", function(input, low, high, dtype, layout, device, pin_memory, memory_format)
  return whole(input, low, high, dtype == nil and core.type(input) or dtype)
end)
--- F.bernoulli(input, p?): 1 with the probability p, else 0, of the tensor's sizes and type; without p each element is the
--- probability.
method("bernoulli", function(input, p)
  return raw.to(raw.lt(drawn("uniform_like", input), p == nil and input or p), core.type(input))
end)

-- A batch's input that each step draws: of the description's sizes, placed as the function places a tensor.
function base.drawn_input(d, placed)
  local x = placed(raw.full(d.shape, 0.0))
  if d.init == "normal" then return raw.to(drawn("normal_like", x), d.type) end
  if d.type == "float32" or d.type == "bfloat16" then return raw.to(drawn("uniform_like", x), d.type) end
  return whole(x, math.tointeger(d.a), math.tointeger(d.b), d.type)
end

--- F.randn(...): of sizes, `F.randn(4, 6)` or `F.randn{4, 6}`, with mean 0 and deviation 1.
--- F.rand(...): likewise, from 0 to 1.
for name, operator in pairs{randn = "normal_like", rand = "uniform_like"} do
  define(name, function(...)
    local given, dtype = {...}, "float32"
    local last = given[#given]
    if base.kind(last) == "table" then dtype = rawget(last, "dtype") or dtype end
    return raw.to(drawn(operator, raw.zeros(...)), floats(nil, dtype))
  end, false)
end
--- F.randint(low, high, size, dtype?): whole numbers from `low` to `high - 1`, of these sizes.
define("randint", function(low, high, size, dtype)
  return whole(raw.full(base.given_sizes(size), 0.0), low, high, dtype)
end)
