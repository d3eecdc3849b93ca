-- einsum.lua: sums of products of any number of tensors, as in torch.einsum.
local core, base = ...
local raw, define, reduced = base.raw, base.define, base.reduced
local misfit, shape_text = base.misfit, base.shape_text

local SMALL = "abcdefghijklmnopqrstuvwxyz"

-- PyTorch's order of letters where an equation has no arrow: capital ones first.
local function in_order(letters)
  table.sort(letters, function(a, b) return string.byte(a) < string.byte(b) end)
  return letters
end

-- The letters of each operand and of the output, as lists; of "..." as "1" for its last dimension, "2" for the one before ...
local function parsed(equation, shapes)
  local text = string.gsub(equation, "%s", "")
  local left, arrow, right = string.match(text, "^([%a.,]*)(%->?)([%a.]*)$")
  if not left then left, arrow, right = string.match(text, "^([%a.,]*)$"), "", "" end
  if not left or arrow == "-" or #text > 200 then
    misfit("'%.40s' is not an equation, such as 'mk,kn->mn' or '...ij,...jk'", equation)
  end
  local operands, longest = {}, 0
  local function letters_of(part, dims)
    local list, before, behind = {}, string.match(part, "^(%a*)%.%.%.(%a*)$")
    if not before then before, behind = string.match(part, "^(%a*)$"), nil end
    if not before then misfit("'%.40s': dots are three, and once in an operand: '%s'", equation, part) end
    for c in string.gmatch(before, ".") do list[#list + 1] = c end
    if behind then
      local n = dims and dims - #before - #behind or longest
      for i = n, 1, -1 do list[#list + 1] = tostring(i) end
      longest = math.max(longest, n)
      for c in string.gmatch(behind, ".") do list[#list + 1] = c end
    end
    return list
  end
  for part in string.gmatch(left .. ",", "([^,]*),") do
    local i = #operands + 1
    operands[i] = letters_of(part, shapes[i] and #shapes[i])
    if shapes[i] and #operands[i] ~= #shapes[i] then
      misfit("'%s' names %d dimensions, and operand %d has the shape %s", part, #operands[i], i, shape_text(shapes[i]))
    end
  end
  if #operands ~= #shapes then
    misfit("'%.40s' is of %d tensor%s, and %d are given", equation, #operands, #operands == 1 and "" or "s", #shapes)
  end
  if arrow ~= "" then return operands, letters_of(right) end
  local count, once, out = {}, {}, {}
  for _, list in ipairs(operands) do
    for _, c in ipairs(list) do count[c] = (count[c] or 0) + 1 end
  end
  for c, n in pairs(count) do
    if n == 1 and string.find(c, "%a") then once[#once + 1] = c end
  end
  for i = longest, 1, -1 do out[#out + 1] = tostring(i) end
  return operands, table.move(in_order(once), 1, #once, #out + 1, out)
end

-- x without the second place of a letter that stands twice: its diagonal; and its letters.
local function without_twins(x, letters)
  for i = 1, #letters do
    for k = i + 1, #letters do
      if letters[i] == letters[k] then
        local shape = core.shape(x)
        if shape[i] ~= shape[k] then misfit("'%s' is %d and %d in one operand", letters[i], shape[i], shape[k]) end
        local rest = {}
        for d, c in ipairs(letters) do
          if d ~= i and d ~= k then rest[#rest + 1] = c end
        end
        rest[#rest + 1] = letters[i]
        return without_twins(raw.diagonal(x, 0, i - 1, k - 1), rest)
      end
    end
  end
  return x, letters
end

local function set_of(list)
  local set = {}
  for _, c in ipairs(list) do set[c] = true end
  return set
end

-- x summed over its letters that are not in `kept`; of those that are 1 in size where others have more, without them.
local function summed(x, letters, kept, sizes)
  local dims, rest, shape = {}, {}, core.shape(x)
  for d, c in ipairs(letters) do
    if kept[c] and shape[d] == sizes[c] then rest[#rest + 1] = c else dims[#dims + 1] = d - 1 end
  end
  return reduced("sum", x, dims), rest
end

-- x, whose letters are `from`, in the order of `to`, which has no others; letters that x lacks are 1 in size.
local function ordered(x, from, to, sizes)
  local at, order, shape, whole = {}, {}, {}, {}
  for d, c in ipairs(from) do at[c] = d - 1 end
  for d, c in ipairs(to) do
    if at[c] then order[#order + 1] = at[c] end
    shape[d], whole[d] = at[c] and sizes[c] or 1, sizes[c]
  end
  if #order > 0 then x = raw.permute(x, order) end
  if #order == #to then return x end
  return raw.expand(base.view(x, shape), whole)
end

local function product(a, first, b, second, kept)
  if #first == 0 or #second == 0 then
    local letters = #first > 0 and first or second
    return summed(raw.mul(a, b), letters, kept, setmetatable({}, {__index = function(_, c)
      local from = #first > 0 and a or b
      for d, letter in ipairs(letters) do
        if letter == c then return core.shape(from)[d] end
      end
    end}))
  end
  local names, used, out = {}, 0, {}
  local function named(letters)
    local text = ""
    for _, c in ipairs(letters) do
      if not names[c] then
        used = used + 1
        if used > #SMALL then misfit("it takes at most %d letters", #SMALL) end
        names[c] = string.sub(SMALL, used, used)
      end
      text = text .. names[c]
    end
    return text
  end
  local seen = {}
  for _, list in ipairs{first, second} do
    for _, c in ipairs(list) do
      if kept[c] and not seen[c] then seen[c], out[#out + 1] = true, c end
    end
  end
  local left, right = named(first), named(second)
  return base.product(a, b, left .. "," .. right .. "->" .. named(out)), out
end

--- # Sums and products
--- F.einsum(equation, ...): of any number of tensors, `F.einsum("bik,bjk->bij", a, b)`; `...` means further
--- dimensions, which broadcast. Without an arrow the output has the letters that stand once, in their order.
define("einsum", function(equation, ...)
  local tensors = {...}
  if base.kind(tensors[1]) == "table" and #tensors == 1 then
    tensors = table.move(tensors[1], 1, base.list(tensors[1], "the operands"), 1, {})
  end
  if type(equation) ~= "string" then
    misfit("the equation comes first, such as 'mk,kn->mn', not %s", base.a(equation))
  end
  if #tensors == 0 then misfit("it takes tensors after the equation") end
  local shapes, sizes = {}, {}
  for i, x in ipairs(tensors) do shapes[i] = core.shape(base.tensor(x, string.format("operand %d", i))) end
  local operands, out = parsed(equation, shapes)
  local list = {}
  for i, letters in ipairs(operands) do
    list[i] = {x = tensors[i]}
    list[i].x, list[i].letters = without_twins(tensors[i], letters)
    local shape = core.shape(list[i].x)
    for d, c in ipairs(list[i].letters) do
      if sizes[c] and sizes[c] ~= 1 and shape[d] ~= 1 and sizes[c] ~= shape[d] then
        misfit("'%.40s': '%s' is %d and %d", equation, c, sizes[c], shape[d])
      end
      sizes[c] = math.max(sizes[c] or 1, shape[d])
    end
  end
  local of_output = set_of(out)
  for i, c in ipairs(out) do
    if not sizes[c] then misfit("no operand has the '%s'", c) end
    for k = 1, i - 1 do
      if out[k] == c then misfit("'%s' stands twice after the arrow", c) end
    end
  end
  -- What stays of operand i: what the output or an operand after it has.
  local function kept_behind(i)
    local kept = set_of(out)
    for k = i, #list do
      for _, c in ipairs(list[k].letters) do kept[c] = true end
    end
    return kept
  end
  local x, letters = summed(list[1].x, list[1].letters, kept_behind(2), sizes)
  for i = 2, #list do
    local here = kept_behind(i + 1)
    for _, c in ipairs(letters) do here[c] = true end
    local y, other = summed(list[i].x, list[i].letters, here, sizes)
    local rest = kept_behind(i + 1)
    -- Of the letters so far those that the next operand lacks, and that nothing needs, are summed first.
    local with_next = set_of(other)
    for c in pairs(rest) do with_next[c] = true end
    x, letters = summed(x, letters, with_next, sizes)
    x, letters = product(x, letters, y, other, rest)
  end
  x, letters = summed(x, letters, of_output, sizes)
  return ordered(x, letters, out, sizes)
end, "tensors")
