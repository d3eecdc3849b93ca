-- Without its globals, tpgen's own Lua still works or complains.
local keep, rawset_ = nn, rawset
for _, name in ipairs{ "type", "error", "pairs", "ipairs", "select", "tostring", "setmetatable", "rawget",
                       "assert", "tonumber", "print", "F", "train", "Shard" } do
  rawset_(_ENV, name, function() while true do end end)
end
keep.Linear("x", "y")
