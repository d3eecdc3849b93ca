-- random.lua: operators of exported programs that draw numbers: anew in each step, by the plan's seed, the same on every
-- mesh. The distribution is PyTorch's, the numbers are not.
local core, base = ...
local raw, fail, torch = base.raw, base.fail, base.torch
local operators, is_tensor, plain_tensor = base.torch_operators, core.is_tensor, torch.plain_tensor

local function is_float(name) return name == "float32" or name == "bfloat16" end

-- Numbers from 0 to 1, and normal ones, of a tensor's sizes; floats.
local function uniform(x) return raw.rand_like(raw.to(x, "float32")) end
local function normal(x) return raw.randn_like(raw.to(x, "float32")) end
local function of_sizes(a, default)
  local kind = a.dtype or default
  if not is_float(kind) and default == "float32" then fail("random numbers of type %s are not supported", kind) end
  return raw.full(a.size, 0.0, "float32"), kind
end
local function typed_as(x, kind) return kind and kind ~= "float32" and raw.to(x, kind) or x end

for name, draw in pairs{rand = uniform, randn = normal} do
  operators[name] = function(a)
    local x, kind = of_sizes(a, "float32")
    return typed_as(draw(x), kind)
  end
  operators[name .. "_like"] = function(a)
    local x = plain_tensor(a.self)
    local kind = a.dtype or core.type(x)
    if not is_float(kind) then fail("%s_like of type %s is not supported", name, kind) end
    return typed_as(draw(x), kind)
  end
end

operators.randint = function(a)
  return raw.randint_like(raw.full(a.size, 0.0, "float32"), a.low or 0, a.high, a.dtype or "int64")
end
operators.randint_like = function(a)
  local x = plain_tensor(a.self)
  return raw.randint_like(x, a.low or 0, a.high, a.dtype or core.type(x))
end
-- In the order of drawn numbers, of 48 bits: that two are equal is as good as impossible.
operators.randperm = function(a)
  local x = raw.full({a.n}, 0.0, "float32")
  local first = raw.argsort(torch.sortable(uniform(x), 0), 0)
  local second = raw.argsort(torch.sortable(raw.gather(uniform(x), 0, first), 0), 0)
  return raw.to(raw.gather(first, 0, second), a.dtype or "int64")
end

-- 1 with a probability, which is a number or that of each element.
local function hits(x, p) return raw.to(raw.lt(uniform(x), p), core.type(x)) end
operators.bernoulli = function(a)
  local x = plain_tensor(a.self)
  return hits(x, a.p == nil and x or a.p)
end
operators.bernoulli_ = function(a)
  local p = a.p == nil and 0.5 or plain_tensor(a.p)
  return hits(plain_tensor(a.self), p)
end

-- In the place of a tensor's elements. u is from 0 to 1, and never 1.
local FILLS = {
  uniform = function(x, a)
    local low, high = a.from or 0, a.to or 1
    return raw.add(raw.mul(uniform(x), high - low), low)
  end,
  normal = function(x, a) return raw.add(raw.mul(normal(x), a.std or 1), a.mean or 0) end,
  log_normal = function(x, a) return raw.exp(raw.add(raw.mul(normal(x), a.std or 2), a.mean or 1)) end,
  exponential = function(x, a) return raw.div(raw.neg(raw.log1p(raw.neg(uniform(x)))), a.lambd or 1) end,
  cauchy = function(x, a)
    local angle = raw.mul(raw.sub(uniform(x), 0.5), math.pi)
    return raw.add(raw.mul(raw.div(raw.sin(angle), raw.cos(angle)), a.sigma or 1), a.median or 0)
  end,
}
for name, fill in pairs(FILLS) do
  local function f(a)
    local x = plain_tensor(a.self)
    if not is_float(core.type(x)) then fail("%s of type %s is not supported", name, core.type(x)) end
    return typed_as(fill(x, a), core.type(x))
  end
  operators[name .. "_"] = f
  if name ~= "normal" then operators[name] = f end
end
operators.normal_functional = operators.normal_
-- torch.normal: of means and deviations, which are tensors or numbers; or of sizes.
operators.normal = function(a)
  local mean, std = plain_tensor(a.mean), plain_tensor(a.std)
  if mean == nil and is_tensor(a.self) then mean = a.self end
  if mean == nil then mean = 0.0 end
  if std == nil then std = 1.0 end
  local x = a.size and raw.full(a.size, 0.0, "float32") or raw.add(raw.mul(mean, 0.0), raw.mul(std, 0.0))
  return typed_as(raw.add(raw.mul(normal(x), std), mean), a.dtype)
end

-- Places by weights: those of the largest log(weight) + g, where g are drawn by Gumbel's distribution.
operators.multinomial = function(a)
  local x, n = plain_tensor(a.self), a.num_samples
  local shape = core.shape(x)
  local function keys(weights) return raw.sub(raw.log(weights), raw.log(raw.neg(raw.log1p(raw.neg(uniform(weights)))))) end
  if not a.replacement then return (select(2, operators.topk{self = keys(raw.detach(x)), k = n, dim = -1})) end
  local sizes = table.move(shape, 1, #shape, 1, {})
  table.insert(sizes, #sizes, n)
  return raw.argmax(keys(raw.expand(raw.unsqueeze(raw.detach(x), -2), sizes)), -1)
end
