-- nn_state.lua: what modules hold beside parameters and modules by name, and whether they train, as in torch.nn.
local core, base, plan = ...
local fail = base.fail
local nn, methods, modes = plan.nn, base.module_methods, base.modes_of_modules

-- ------------------------------------------------------------------------------------- containers

-- The members of a table by name, each of a kind; what: words for messages behind the member's name.
local function take_by_name(self, given, class, kind, what)
  for name, member in pairs(base.expect(given or {}, "table", "what " .. class .. " is given")) do
    base.expect(name, "string", "a name in " .. class)
    self[name] = base.expect(member, kind, class .. "'s member '" .. name .. "'" .. what)
  end
end

--- # Modules
--- nn.ModuleDict(modules?): modules by name: `dict.name`, `dict["name"]`, `pairs` goes through them in the names' order.
nn.ModuleDict = nn.module("ModuleDict", function(self, modules)
  take_by_name(self, modules, "nn.ModuleDict", "module", "")
  function self:forward() fail("a ModuleDict is not called: call its modules") end
end)

--- nn.ParameterList(parameters?): parameters, called "0", "1", ...: `list[1]`, `#list`, `ipairs(list)`.
nn.ParameterList = nn.module("ParameterList", function(self, parameters)
  local given = base.expect(parameters or {}, "table", "what nn.ParameterList is given")
  for i = 1, base.length(given, "what nn.ParameterList is given") do
    self[i] = base.expect(given[i], "tensor", string.format("nn.ParameterList's member %d, an nn.Parameter,", i))
  end
  function self:forward() fail("a ParameterList is not called: its members are tensors") end
end)

--- nn.ParameterDict(parameters?): parameters by name: `dict.name`.
nn.ParameterDict = nn.module("ParameterDict", function(self, parameters)
  take_by_name(self, parameters, "nn.ParameterDict", "tensor", ", an nn.Parameter,")
  function self:forward() fail("a ParameterDict is not called: its members are tensors") end
end)

-- ---------------------------------------------------------------------------- buffers, and parameters

local function named(self, name, who)
  base.expect(self, "module", "what " .. who .. " is called of")
  core.check_name(base.expect(name, "string", "the name that " .. who .. " is given"), "the name that " .. who .. " is given")
  if rawget(self, name) ~= nil then fail("%s: there is '%s' already", who, name) end
end

--- module:register_buffer(name, tensor, persistent = true): a tensor of the module that files have and no step trains: a
--- description, such as `zeros{16}`, or an nn.Parameter.
function methods.register_buffer(self, name, tensor, persistent)
  named(self, name, "register_buffer")
  if persistent ~= nil and not base.boolean(persistent, "register_buffer's persistent") then
    fail("register_buffer: a buffer that no file has is a constant: make it in forward, as by F.zeros or F.arange")
  end
  local made = base.kind(tensor) == "description" and nn.Parameter(tensor) or tensor
  core.make_buffer(base.expect(made, "tensor", "register_buffer's tensor, such as zeros{16},"))
  self[name] = made
end

--- module:register_parameter(name, param): `module[name] = param`.
function methods.register_parameter(self, name, param)
  named(self, name, "register_parameter")
  self[name] = base.expect(param, "tensor", "register_parameter's param, an nn.Parameter,")
end

-- ---------------------------------------------------------------------------------------- modes

-- Those whose running statistics eval() has fixed.
local fixed = {}

local function set_mode(module, mode)
  modes[module] = mode
  local has_statistics = rawget(module, "running_mean") ~= nil and rawget(module, "running_var") ~= nil
  if has_statistics and not mode then
    fixed[module] = true
    core.make_buffer(module.running_mean)
    core.make_buffer(module.running_var)
  elseif fixed[module] then
    fail("train: eval() has fixed the statistics of a %s in it", base.class_name(module))
  end
  local children = base.children(module)
  for i = 2, #children, 2 do set_mode(children[i], mode) end
end

--- module:eval(): in and below the module no dropout, and BatchNorm takes its running statistics, in training, too. Its
--- parameters are trained still: `module:requires_grad_(false)`. In a forward `self.training` is whether the program trains
--- and the module does: one answer for a program, in validations, too.
function methods.eval(self)
  set_mode(base.expect(self, "module", "what eval is called of"), false)
  return self
end
--- module:train(mode = true): as the program does; with false `module:eval()`.
function methods.train(self, mode)
  base.expect(self, "module", "what train is called of")
  set_mode(self, mode == nil or base.boolean(mode, "train's mode"))
  return self
end

local noted

-- module.training: in a forward, whether the program trains, and the module does. It is one answer for a program: in
-- validations between steps, too.
function base.trains(self)
  if modes[self] == false then return false end
  if not core.recording() then return true end
  if base.of_training and not noted then
    noted = true
    core.note("self.training is true in the whole program, in validations, too")
  end
  return base.training
end
