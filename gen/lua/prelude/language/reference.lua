-- reference.lua: the reference of the plan language, for tpgen --reference and --reference=types. It is made of the
-- comments of these files that begin with ---, beside the functions that they describe:
--
--   --- # Activations                                   the title of what follows in the file
--   --- F.softplus(input, beta = 1, threshold = 20): log(1 + exp(beta x)) / beta
--   --- further words
--   ---   name = default: an option, of a table of named arguments
--   ---     further words
--
-- ? follows a parameter that may be left out and has no default. The functions that a plan can call and the entries must
-- be the same, with the same parameters and options: else tpgen says what differs.
local core, base, plan = ...

local wrong = {}
local function differs(format, ...) wrong[#wrong + 1] = string.format(format, ...) end

-- ----------------------------------------------------------------------------------- the comments

local FILES = { -- in the order of the reference
  "language/settings.lua", "language/files.lua", "parallel/parallel.lua", "nn/nn.lua", "nn/nn_state.lua",
  "nn/nn_init.lua", "nn/nn_transformer.lua", "nn/nn_losses.lua", "nn/nn_layers.lua", "nn/nn_more.lua",
  "nn/nn_recurrent.lua", "nn/experts.lua", "tensors/tensors.lua", "tensors/elements.lua", "tensors/likes.lua", "tensors/random.lua",
  "tensors/views.lua", "tensors/functions.lua", "tensors/einsum.lua",
  "tensors/activations.lua", "tensors/losses.lua", "tensors/distances.lua", "tensors/normalization.lua", "tensors/attention.lua",
  "tensors/indices.lua", "tensors/reordering.lua", "tensors/images.lua", "tensors/volumes.lua", "tensors/recurrent.lua", "tensors/rows.lua",
  "tensors/torch_functions.lua", "tensors/torch_layers.lua",
  "language/operators.lua", "parallel/styles.lua", "parallel/auto.lua", "parallel/parallel_plan.lua", "parallel/fully_shard.lua", "parallel/context.lua",
  "parallel/pipeline.lua", "parallel/lora.lua", "training/requires_grad.lua", "training/stored_weights.lua", "training/precision.lua",
  "training/train.lua", "training/generate.lua", "training/optimizers.lua", "training/updates.lua",
  "training/schedules.lua",
}

local sections, entries = {}, {}

local function read_line(state, line)
  local title = string.match(line, "^# (.*)$")
  if title then
    state.section, state.entry, state.option = sections[title], nil, nil
    if not state.section then
      state.section = {title = title, words = ""}
      sections[#sections + 1], sections[title] = state.section, state.section
    end
    return
  end
  if state.begun then line, state.begun = state.begun .. " " .. line, nil end
  if string.find(line, "^[%w_.:]+%(") and not string.find(line, "^[%w_.:]+%b()") then
    state.begun = line -- its parameters go on in the next line
    return
  end
  local name, parameters, words = string.match(line, "^([%w_.:]+)(%b()): *(.*)$")
  if name then
    if entries[name] then differs("%s: %s is described twice", state.file, name) end
    if not state.section then differs("%s: %s has no title before it", state.file, name) end
    local e = {name = name, parameters = string.sub(parameters, 2, -2), words = words, options = {}, file = state.file}
    entries[name], entries[#entries + 1], state.entry, state.option = e, e, e, nil
    if state.section then state.section[#state.section + 1] = e end
    return
  end
  local option, value, about = string.match(line, "^  ([%w_]+)( ?=? ?[^:]*): (.*)$")
  if option and state.entry then
    state.option = {name = option, default = string.match(value, "^ = (.*)$"), words = about}
    state.entry.options[#state.entry.options + 1] = state.option
    return
  end
  local further = string.match(line, "^ *(.*)$")
  local to = string.find(line, "^    ") and state.option or state.entry or state.section
  if to then to.words = to.words .. " " .. further else differs("%s: '%s' follows nothing", state.file, line) end
end

local function read_sources()
  local texts = {}
  for _, source in ipairs(core.sources()) do texts[source[1]] = source[2] end
  for _, file in ipairs(FILES) do
    local state = {file = file}
    for line in string.gmatch(texts[file], "[^\n]*") do
      local words = string.match(line, "^%s*%-%-%- ?(.*)$")
      if words then read_line(state, words) end
    end
    texts[file] = nil
  end
  texts["language/reference.lua"] = nil
  for file, text in pairs(texts) do
    if string.find("\n" .. text, "\n%s*%-%-%- ") then differs("%s has descriptions and no place in FILES", file) end
  end
end

-- {name, optional, default} of each parameter, as the entry writes them.
local function parameters_of(e)
  local list, depth, text = {}, 0, e.parameters
  local part = ""
  for c in string.gmatch(text .. ",", ".") do
    if c == "{" then depth = depth + 1 elseif c == "}" then depth = depth - 1 end
    if c == "," and depth == 0 then
      local name, rest = string.match(part, "^%s*([%w_.]+)(.*)$")
      if name then
        list[#list + 1] = {name = name, optional = rest ~= "", default = string.match(rest, "^%s*=%s*(.*)$")}
      end
      part = ""
    else
      part = part .. c
    end
  end
  return list
end

-- ---------------------------------------------------------------------------------- what a plan has

local called = {} -- what a plan can call, by the name of its entry

local function add_callable(name, f, is_ours)
  local names, more, is_foreign = core.parameters_of_function(f, is_ours)
  if not is_foreign then called[name] = {names = names, more = more} end
end

local function add_all()
  for name, f in pairs(base.F) do add_callable("F." .. name, f) end
  for name, f in pairs(core.methods) do
    if f ~= rawget(base.F, name) then add_callable("x:" .. name, f) end
  end
  for name in pairs(base.row_options) do called["F." .. name].row = base.row_options[name] end
  for name, class in pairs(plan.nn) do
    if base.kind(class) == "module class" then
      add_callable("nn." .. name, base.constructors[name] or base.inits[name])
      if not base.constructors[name] then table.remove(called["nn." .. name].names, 1) end -- self
    elseif type(class) == "function" then
      add_callable("nn." .. name, class)
    end
  end
  for name, f in pairs(plan.nn.init) do add_callable("nn.init." .. name, f) end
  for name, f in pairs(plan) do
    if type(f) == "function" and rawget(_ENV, name) ~= f then
      add_callable(name, f, true)
      local defaults = base.defaults_of_optimizers[core.behind(f)]
      if defaults then called[name].defaults = defaults end
    end
  end
  for name, f in pairs(base.module_methods) do
    if name ~= "requires_grad_" then -- described as the tensor's
      add_callable("module:" .. name, f)
      table.remove(called["module:" .. name].names, 1)
    end
  end
  for name, f in pairs(base.methods_of_updates) do add_callable("p:" .. name, f, true) end
end

-- ------------------------------------------------------------------------------------- the comparison

local function as_set(list)
  local set = {}
  for _, name in ipairs(list) do set[name] = true end
  return set
end

local function check_parameters(e, c)
  local given, names = parameters_of(e), {}
  for i, p in ipairs(given) do names[i] = p.name end
  local expected = table.concat(c.names, ", ") .. (c.more and (#c.names > 0 and ", ..." or "...") or "")
  local written = table.concat(names, ", ")
  if written ~= expected then differs("%s: %s has the parameters (%s), not (%s)", e.file, e.name, expected, written) end
end

local function check_options(e, known)
  local set, described = as_set(known), {}
  for _, option in ipairs(e.options) do
    if not set[option.name] then differs("%s: %s takes no %s", e.file, e.name, option.name) end
    described[option.name] = true
  end
  for _, name in ipairs(known) do
    if not described[name] then differs("%s: %s says nothing of its option %s", e.file, e.name, name) end
  end
end

local function check_all()
  for name, c in pairs(called) do
    local e = entries[name]
    if not e then
      differs("%s(%s) is not described", name, table.concat(c.names, ", "))
    else
      check_parameters(e, c)
      check_options(e, base.known_options[name] or {})
    end
  end
  for _, e in ipairs(entries) do
    if not called[e.name] then differs("%s: a plan cannot call %s", e.file, e.name) end
  end
  for name in pairs(base.known_options) do
    if not called[name] then differs("the options of %s belong to no function", name) end
  end
end

-- -------------------------------------------------------------------------------------- the output

local WIDTH, LONGEST_CODE = 128, 60

-- The words in lines, the first one after `first`, others after `further`. Short code stays in one line.
local function wrapped(words, first, further)
  local lines, line = {}, first
  local is_new = true
  words = string.gsub(words, "`[^`]*`", function(code) return #code <= LONGEST_CODE and string.gsub(code, " ", "\1") or code end)
  for word in string.gmatch(words, "%S+") do
    if not is_new and #line + 1 + #word > WIDTH then
      lines[#lines + 1], line, is_new = line, further, true
    end
    line = line .. (is_new and "" or " ") .. word
    is_new = false
  end
  lines[#lines + 1] = line
  return string.gsub(table.concat(lines, "\n"), "\1", " ") .. "\n"
end

local function text_of_value(v)
  if type(v) == "table" then
    local list = {}
    for i, x in ipairs(v) do list[i] = text_of_value(x) end
    return "{" .. table.concat(list, ", ") .. "}"
  end
  if type(v) == "string" then return '"' .. v .. '"' end
  return math.type(v) == "float" and string.format("%g", v) or tostring(v)
end

-- The call as a plan writes it.
local function call_text(e)
  local list = {}
  for i, p in ipairs(parameters_of(e)) do
    list[i] = p.name .. (p.default and " = " .. p.default or p.optional and "?" or "")
  end
  return e.name .. "(" .. table.concat(list, ", ") .. ")"
end

local function method_text(e)
  local name = string.match(e.name, "^F%.(.*)$")
  if not name or rawget(core.methods, name) ~= base.F[name] then return "" end
  return " (method)"
end

local function sorted(t)
  local names = {}
  for name in pairs(t) do names[#names + 1] = name end
  table.sort(names)
  return names
end

local function write_entry(e)
  local c = called[e.name]
  core.write(wrapped("`" .. call_text(e) .. "`" .. method_text(e) .. ": " .. e.words, "* ", "  "))
  for _, option in ipairs(e.options) do
    local default = option.default and " = " .. option.default or ""
    core.write(wrapped("`" .. option.name .. default .. "`: " .. option.words, "  * ", "    "))
  end
  if c.defaults then
    local list = {}
    for _, name in ipairs(sorted(c.defaults)) do list[#list + 1] = name .. " = " .. text_of_value(c.defaults[name]) end
    core.write(wrapped("options: `" .. table.concat(list, ", ") .. "`", "  * ", "    "))
  end
  if c.row then core.write(wrapped("options: `" .. table.concat(c.row, ", ") .. "`", "  * ", "    ")) end
end

-- The pointwise operators that are methods of an update's tensors.
local function pointwise()
  local names = {}
  for name in pairs(core.element_rows()) do
    if not string.find(name, "_back$") then names[#names + 1] = "`" .. name .. "`" end
  end
  table.sort(names)
  return table.concat(names, ", ")
end

local function own_names()
  local names = {}
  for name in pairs(plan) do
    if rawget(_ENV, name) == plan[name] or type(plan[name]) == "table" and rawget(_ENV, name) then
      names[#names + 1] = "`" .. name .. "`"
    end
  end
  table.sort(names)
  return table.concat(names, ", ")
end

local function write_markdown()
  core.write("# Reference of the plan language\n\n"
    .. wrapped("`tpgen --reference` writes this page from the comments beside the functions; a test compares the two. "
      .. "`a?` is an argument that may be left out, `a = 1` one with a default. The last argument of a function of `F`, of a "
      .. "module or of a method may be a table of arguments by name: `x:softmax{dim = -1}`. A function that is "
      .. "called a method here is one, too: `x:relu()` is `F.relu(x)`. Dimensions are counted from 0, or from the end with negative numbers, as in PyTorch.", "", "")
    .. "\n")
  for _, section in ipairs(sections) do
    local anchor = string.gsub(string.gsub(string.lower(section.title), "[^%w -]", ""), " ", "-")
    core.write(string.format("* [%s](#%s)\n", section.title, anchor))
  end
  for _, section in ipairs(sections) do
    core.write("\n## " .. section.title .. "\n\n")
    if section.words ~= "" then core.write(wrapped(string.gsub(section.words, "%$pointwise", pointwise()), "", "") .. "\n") end
    for _, e in ipairs(section) do write_entry(e) end
  end
  core.write("\n## Lua's own\n\n" .. wrapped("A plan has these of Lua 5.4: " .. own_names() .. ". `math` is without "
    .. "`random`, `string` without `dump`; `pairs` goes through keys in their order.", "", ""))
end

-- The types of parameters, by name.
local TYPE = {
  input = "tpgen.Tensor", tensor = "tpgen.Tensor", query = "tpgen.Tensor", key = "tpgen.Tensor", value = "tpgen.Tensor",
  target = "tpgen.Tensor", condition = "tpgen.Tensor", index = "tpgen.Tensor", other = "tpgen.Tensor|number",
  dim = "integer|integer[]", dims = "integer|integer[]", keepdim = "boolean", dtype = "string", eps = "number",
  model = "tpgen.Module", module = "tpgen.Module", mesh = "tpgen.Mesh", options = "table", definition = "table",
  bias = "boolean|tpgen.Tensor", in_features = "integer", out_features = "integer", reduction = "string",
}

-- The type of a function's result, by the beginning of its name.
local RESULT = {F = "tpgen.Tensor", x = "tpgen.Tensor", nn = "tpgen.Module", p = "tpgen.Tensor"}

local function comment(words) return wrapped(words, "---", "---") end

-- A name of Lua: PyTorch's `end` is none.
local function parameter_name(name) return name == "end" and "end_" or name end

local function write_function(e, name, parameters, skipped, result)
  local names = {}
  core.write("\n" .. comment(e.words))
  if #e.options > 0 then
    for _, option in ipairs(e.options) do
      core.write(comment("* `" .. option.name .. (option.default and " = " .. option.default or "") .. "`: " .. option.words))
    end
  end
  for i, p in ipairs(parameters) do
    if i > skipped then
      local word = p.name == "..." and "..." or parameter_name(p.name) .. (p.optional and "?" or "")
      core.write("---@param " .. word .. " " .. (TYPE[p.name] or "any") .. (p.default and " # default " .. p.default or "") .. "\n")
      names[#names + 1] = p.name == "..." and "..." or parameter_name(p.name)
    end
  end
  if result then core.write("---@return " .. result .. "\n") end
  core.write("function " .. name .. "(" .. table.concat(names, ", ") .. ") end\n")
end

local function write_types()
  core.write("---@meta\n-- The plan language of tpgen, for editors: tpgen --reference=types writes this file.\n\n"
    .. "---@class tpgen.Tensor\n---@field shape integer[]\n---@field dtype string\n"
    .. "---@operator add(any): tpgen.Tensor\n---@operator sub(any): tpgen.Tensor\n---@operator mul(any): tpgen.Tensor\n"
    .. "---@operator div(any): tpgen.Tensor\n---@operator pow(any): tpgen.Tensor\n---@operator unm: tpgen.Tensor\n"
    .. "local Tensor = {}\n\n---@class tpgen.Module\n---@overload fun(...): any\nlocal Module = {}\n\n"
    .. "---@class tpgen.Mesh\n---@overload fun(dimensions: string[]): tpgen.Mesh\nlocal Mesh = {}\n\n"
    .. "---The values of -D.\n---@type table<string, any>\nargs = {}\n\nF = {}\nnn = {init = {}}\n")
  for _, section in ipairs(sections) do
    for _, e in ipairs(section) do
      local parameters, kind = parameters_of(e), string.match(e.name, "^(%w+)[.:]")
      local last = string.match(e.name, "([%w_]+)$")
      if kind ~= "p" and kind ~= "x" then
        write_function(e, e.name, parameters, 0, e.name ~= "nn.module" and RESULT[kind] or nil)
      end
      if kind == "x" then write_function(e, "Tensor:" .. last, parameters, 1, RESULT.x) end
      if kind == "F" and rawget(core.methods, last) == base.F[last] then
        write_function(e, "Tensor:" .. last, parameters, 1, RESULT.x)
      end
    end
  end
end

read_sources()
add_all()
check_all()
if #wrong > 0 then
  base.fail("the comments of the reference and the functions differ in %d places: %s", #wrong, table.concat(wrong, "; "))
end
if core.reference_form() == "types" then write_types() else write_markdown() end
