-- reordering.lua: a tensor's elements in another order, or more than once: flip, roll, tile,
-- repeat_interleave, as in torch.
local core, base = ...
local raw, method = base.raw, base.method
local misfit, shape_text, dimension = base.misfit, base.shape_text, base.dimension

--- # Rearranged
--- F.flip(input, ...): in reverse order along dimensions.
method("flip", function(input, ...)
  local x = input
  local shape = core.shape(x)
  for _, d in ipairs(base.dimensions(shape, base.integers("dimension", ...))) do
    local n = shape[d + 1]
    if n > 1 then x = raw.index_select(x, d, raw.sub(n - 1, raw.arange(n))) end
  end
  return x
end, "dims")

-- Shifts dimension d to the right by `shift`; elements that leave enter at the left.
local function rolled(x, d, shift)
  local n = core.shape(x)[d + 1]
  shift = n > 0 and shift % n or 0
  if shift == 0 then return x end
  return raw.cat({base.narrow(x, d, n - shift, shift), base.narrow(x, d, 0, n - shift)}, d)
end

--- F.roll(input, shifts, dims?): shifted around; without `dims` the flattened tensor.
method("roll", function(input, shifts, dims)
  local x = input
  local shape = core.shape(x)
  local by = base.integers("shift", shifts)
  if dims == nil or base.kind(dims) == "table" and rawlen(dims) == 0 then
    if #by ~= 1 then misfit("%d shifts need the dimensions that they are for", #by) end
    return base.view(rolled(raw.flatten(x), 0, by[1]), shape)
  end
  local at = base.integers("dimension", dims)
  if #at ~= #by then misfit("%d shifts for %d dimensions", #by, #at) end
  for i, dim in ipairs(at) do x = rolled(x, dimension(shape, dim), by[i]) end
  return x
end)

-- Repeats each block of x along dimension d, of `block` elements, n times.
local function repeated(x, d, block, n)
  local shape = core.shape(x)
  if n == 1 then return x end
  local split, across, merged = {}, {}, {}
  for i, size in ipairs(shape) do
    local sizes = i == d + 1 and {size // block, 1, block} or {size}
    for _, s in ipairs(sizes) do split[#split + 1], across[#across + 1] = s, s end
    if i == d + 1 then across[#across - 1] = n end
    merged[i] = i == d + 1 and size * n or size
  end
  if #split > 8 then misfit("a tensor of %d dimensions is too many: at most 6", #shape) end
  return base.view(raw.expand(base.view(x, split), across), merged)
end

--- F.repeat_interleave(input, repeats, dim?, output_size?): each element so often; without `dim` the flattened
--- tensor.
method("repeat_interleave", function(input, repeats, dim, output_size)
  local x, n = input, base.whole(repeats, "the number of repetitions", 1, 1 << 31)
  local before = dim == nil and base.elements(core.shape(x)) or core.shape(x)[dimension(core.shape(x), dim) + 1]
  if output_size ~= nil and output_size ~= n * before then
    misfit("output_size is %s, and %d repetitions of %d are %d", output_size, n, before, n * before)
  end
  if dim == nil then return repeated(raw.flatten(x), 0, 1, n) end
  return repeated(x, dimension(core.shape(x), dim), 1, n)
end)

--- F.tile(input, ...): the tensor so often along each of the last dimensions. `repeat` is a keyword of Lua.
method("tile", function(input, ...)
  local x = input
  local times, shape = base.integers("number of repetitions", ...), core.shape(x)
  if #times > 8 then misfit("a tensor has at most 8 dimensions, not %d", #times) end
  while #shape < #times do table.insert(shape, 1, 1) end
  x = base.view(x, shape)
  for i, n in ipairs(times) do
    if n < 1 then misfit("%d repetitions of dimension %d of the shape %s", n, i - 1, shape_text(shape)) end
    local d = #shape - #times + i - 1
    x = repeated(x, d, shape[d + 1], n)
  end
  return x
end, "dims")
