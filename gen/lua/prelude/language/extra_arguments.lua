-- extra_arguments.lua: the last of these files: makes each function that a plan calls by a name refuse
-- surplus arguments (extra_arguments.c). Those of F do so by themselves (core.named).
local core, _, plan = ...

-- Wraps the functions among these, except Lua's own.
local function count_all(functions, prefix, by_name)
  for name, f in pairs(functions) do
    if type(f) == "function" and rawget(_ENV, name) ~= f then
      rawset(functions, name, core.counted(prefix .. name, f, by_name))
    end
  end
end

count_all(plan, "")
count_all(plan.nn, "nn.")
count_all(plan.nn.init, "nn.init.", true)
