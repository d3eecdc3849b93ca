-- files.lua: what a plan may read beside itself.
local core, base, plan = ...

-- read_json(path): what the file holds. The path is one that the command line names, as in
-- -D config=FILE, or that of a file beside the plan or below it. Comes before train and infer.
function plan.read_json(path)
  base.expect(path, "string", "the path that read_json is given")
  if base.begun then base.fail("read_json comes before train and infer") end
  return core.read_json(path)
end
