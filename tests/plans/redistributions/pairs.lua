-- Moves of one tensor between layouts: every input lies in one of them and is moved to others. What
-- comes out is what went in, whatever the way.
--
--   -D mesh=2x3 -D shape=7x5   the mesh, and the tensor
--   -D every=7 -D first=3      of all pairs of layouts every 7th, from the third on
--   -D type=int64              the tensor's elements, which come as float32
--   -D through=bfloat16        the type in which it is moved
--   -D planner=greedy -D slow=a    the planner; a dimension of the mesh whose links are slow
--
-- Inputs are x1, x2 ... by the layout that they lie in, the same tensor all; every output must be it:
-- x7_0R_10, input 7 moved from 0R to 10, and x7_0R_1R_most and _least, of all copies the largest and
-- the smallest elements.
local function numbers(text)
  local list = {}
  for n in string.gmatch(tostring(text), "%d+") do list[#list + 1] = math.tointeger(tonumber(n)) end
  return list
end
local every, first, kind, through, slow = args.every or 1, args.first or 1, args.type, args.through, args.slow
local sizes, shape, names = numbers(args.mesh or 4), numbers(args.shape or "7x5"), {"a", "b", "c", "d"}

local dimensions = {}
for i, size in ipairs(sizes) do
  dimensions[i] = {names[i], size}
  if names[i] == slow then dimensions[i].bandwidth, dimensions[i].latency = 1e9, 1e-6 end
end
local mesh = device_mesh(dimensions)

-- Layouts are texts, a letter for each dimension of the mesh: R, P (pending sum), U (pending
-- maximum), D (pending minimum), or the dimension that it cuts; "t" at the end where the last
-- dimension of the mesh cuts before the others.
local layouts = {}

local function cuts_twice(text)
  for d in string.gmatch(text, "%d") do
    if string.find(text, d .. ".*" .. d) then return true end
  end
  return false
end

local function add_layouts(text, letters)
  if #text < #sizes then
    for letter in string.gmatch(letters, ".") do add_layouts(text .. letter, letters) end
    return
  end
  layouts[#layouts + 1] = text
  if cuts_twice(text) then layouts[#layouts + 1] = text .. "t" end
end

local cuts = string.sub("01234567", 1, #shape)
add_layouts("", "R" .. cuts)
local without = #layouts
if kind ~= "bool" then
  for pending in string.gmatch("PUD", ".") do
    local known = #layouts
    add_layouts("", "R" .. cuts .. pending)
    for i = #layouts, known + 1, -1 do
      if not string.find(layouts[i], pending) then table.remove(layouts, i) end
    end
  end
end

local REDUCTION = {P = "sum", U = "max", D = "min"}

local function letter_of(text, i) return string.sub(text, i, i) end

local function placements(text)
  local list, is_turned = {}, string.find(text, "t")
  for i = 1, #sizes do
    local letter, turn = letter_of(text, i), nil
    if is_turned and cuts_twice(text) then
      turn = 0
      for k = i + 1, #sizes do turn = turn + (letter_of(text, k) == letter and 1 or 0) end
    end
    if REDUCTION[letter] then
      list[i] = Partial(REDUCTION[letter])
    else
      list[i] = letter == "R" and Replicate() or Shard(tonumber(letter), turn)
    end
  end
  return list
end

-- y, with its copies on other ranks reduced into it: wrong ones show.
local function copies_reduced(y, text, letter)
  if string.find(text, "[PUD]") or not string.find(text, "R") then return nil end
  local pending = string.gsub(text, "R", letter)
  return y:redistribute(mesh, placements(pending))
end

-- The inputs from which some pair starts. What is to be pending is whole before, or cut.
local batch = {}
for i, text in ipairs(layouts) do
  if every <= #layouts or (first - (i - 1) * #layouts - 1) % every < #layouts then
    local lies = string.gsub(text, "[PUD]", i % 2 == 0 and "R" or "0")
    batch["x" .. i] = distribute(randn(shape), mesh, placements(lies))
  end
end

-- The outputs of all pairs that start from x, which lies in one of the layouts.
local function move_on(outputs, x, i, n)
  if kind then x = kind == "bool" and x:gt(0) or x:to(kind) end
  for k, to in ipairs(layouts) do
    if (n + k - first) % every == 0 then
      local name, y = string.format("x%d_%s_%s", i, layouts[i], to), x
      if i > without then y = y:redistribute(mesh, placements(layouts[i])) end
      y = y:redistribute(mesh, placements(to), through and {forward_dtype = through})
      outputs[name] = y
      if kind ~= "bool" then
        outputs[name .. "_most"] = copies_reduced(y, to, "U")
        outputs[name .. "_least"] = copies_reduced(y, to, "D")
      end
    end
  end
end

local Model = nn.module("Model", function(self)
  function self:forward(b)
    local outputs = {}
    for i in ipairs(layouts) do
      if batch["x" .. i] then move_on(outputs, b["x" .. i], i, (i - 1) * #layouts) end
    end
    return outputs
  end
end)

return infer{
  model = Model(), batch = batch, planner = args.planner,
  outputs = function(model, batch) return model(batch) end,
  seed = 1,
}
