-- args: -D width=8 -D scale=1e-1 -D deep=true -D name=a -D hex=0x10
-- What a plan may use, and that it is the same in every process.
local here = _ENV
for _, name in ipairs{
  "io", "os", "debug", "package", "load", "loadfile", "loadstring", "dofile", "next",
  "collectgarbage", "coroutine", "pcall", "xpcall", "_G", "warn",
} do
  assert(rawget(here, name) == nil, name)
end
assert(rawget(string, "dump") == nil)
assert(rawget(math, "random") == nil and rawget(math, "randomseed") == nil)
assert(getmetatable("") == nil)
assert(getmetatable(here) == false and getmetatable(randn{1}) == nil and getmetatable(nn) == false)
assert(getmetatable(nn.Linear(1, 1)) == false and getmetatable(Shard(0)) == false)

print(args.width + 1, args.scale, args.deep, args.name, args.hex, args.absent)
for name, value in pairs(args) do print(name, value, math.type(value)) end

-- The order of pairs: whole numbers, then strings by their bytes.
local t = {z = 1, a = 2, ["\u{e4}"] = 3, [10] = 4, [-1] = 5, [2] = 6, B = 7, [""] = 8}
for key, value in pairs(t) do print(key, value) end
for key in pairs{a = 1, b = 2, c = 3} do t[key] = nil end

-- No addresses.
print(t, print, nn.Linear(2, 3), Shard(-1), Replicate(), Partial(), nn.Linear, device_mesh{tp = 1})
print(string.format("%s %s %5.2f %q", {}, print, 3, "a\nb"))
print(setmetatable({}, {__tostring = function() return "mine" end}))

-- Sorting keeps what is equal in place.
local list = {}
for i = 1, 200 do list[i] = {i % 7, i} end
table.sort(list, function(a, b) return a[1] < b[1] end)
for i = 2, #list do
  local a, b = list[i - 1], list[i]
  assert(a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]))
end
local words = {"pear", "apple", "fig"}
table.sort(words)
print(table.concat(words, " "))

-- A plan may give its own things the names of Lua's.
local find = string.find
string.find, string.format, table.concat = nil, nil, nil
pairs, type, tostring, error = nil, nil, nil, nil
assert(find("abc", "b") == 2)

return infer{model = nn.Linear(args.width, 1), batch = {input = randn{2, args.width}}}
