-- surplus.lua: the last of these files: each function that a plan calls by a name refuses more
-- arguments than it takes (surplus.c). Those of F do so by themselves (core.named).
local core, _, plan = ...

-- The functions among these, but for Lua's own, which are also ours.
local function count_all(functions, prefix)
  for name, f in pairs(functions) do
    if type(f) == "function" and rawget(_ENV, name) ~= f then
      rawset(functions, name, core.counted(prefix .. name, f))
    end
  end
end

count_all(plan, "")
count_all(plan.nn, "nn.")
count_all(plan.nn.init, "nn.init.")
