-- auto.lua: auto(), which leaves placements to tpgen (gen/auto).
local core, base, plan = ...
local fail = base.fail

local OPTIONS = base.option_names("auto", {"memory", "parameters"})

local limits_of = {} -- by what auto() gave: its limits in bytes, 0 for none
local asked = {}     -- {modules, dims, limits}

-- A number of bytes, or a text as "80GiB".
local function bytes_option(options, key)
  local given = options[key]
  if given == nil then return 0 end
  if type(given) == "string" then return base.memory(given) end
  return base.integer(given, "auto's " .. key .. ", in bytes,", 1, 1 << 60)
end

--- # Automatic placements
--- auto(options?): in the place of styles: tpgen finds the placements of the modules' parameters, inputs and outputs
--- itself: those with which a step takes least time or, where the mesh has no device, a rank receives the fewest
--- bytes. Also over `mesh`, of several dimensions. It prints them as the styles that one would write.
---   memory: the most bytes of a rank in all: a number, or a text as `"80GiB"`
---   parameters: the most bytes of parameters that a rank keeps
function plan.auto(options)
  options = base.options(options or {}, "auto", OPTIONS)
  local a = base.make("automatic", base.named("auto"))
  limits_of[a] = {memory = bytes_option(options, "memory"), parameters = bytes_option(options, "parameters"),
    line = core.line()}
  return a
end

-- Leaves the modules, and all below them, to the choice over these dimensions of the mesh.
function base.leave_to_auto(modules, dims, a)
  asked[#asked + 1] = {modules = modules, dims = dims, limits = limits_of[a]}
end

local function add_all(module, indices, line)
  indices[#indices + 1] = base.index(module) or fail("auto() of line %d is for a %s that is not part of the model", line,
    base.class_name(module))
  local children = base.children(module)
  for i = 2, #children, 2 do add_all(children[i], indices, line) end
end

-- Called when the model is part of the graph.
function base.lower_auto()
  for _, a in ipairs(asked) do
    local indices = {}
    for _, module in ipairs(a.modules) do add_all(module, indices, a.limits.line) end
    core.add_automatic(indices, base.dims_in_graph(a.dims), a.limits.memory, a.limits.parameters, a.limits.line)
  end
end
