-- torch_export.lua: torch_export("model.pt2"): a program that torch.export saved, as a module like
-- one written in Lua. Its modules and parameters have the names of the exported model, so that
-- styles, units and policies find them by the same patterns.
local core, base = ...
local fail, raw, constants, torch = base.fail, base.raw, base.constants, base.torch
local field, union = torch.field, torch.union

local function names_used(graph)
  local used = {}
  for _, node in ipairs(graph.nodes) do torch.each_input(node, function(name) used[name] = true end) end
  for _, out in ipairs(graph.outputs) do torch.each_name(out, function(name) used[name] = true end) end
  return used
end

local function output_names(program)
  local names = {}
  for _, spec in ipairs(field(program.signature, "output_specs", "table", program.path)) do
    local kind, s = union(spec, program.path)
    if kind == "user_output" then
      if s.arg.as_tensor then names[#names + 1] = s.arg.as_tensor.name end
    elseif kind == "loss_output" and type(s.arg) == "table" and type(s.arg.name) == "string" then
      names[#names + 1] = s.arg.name
    elseif kind == "parameter_mutation" then
      fail("torch_export: %s changes its parameter %s as it goes forward, which is not supported", program.path,
        tostring(s.parameter_name))
    elseif kind ~= "buffer_mutation" and kind ~= "gradient_to_parameter" and kind ~= "gradient_to_user_input" then
      fail("torch_export: %s has an output of kind %s, which is not supported", program.path, tostring(kind))
    end
  end
  return names
end

-- The paths of parameters, by their names in the graph.
local function parameter_paths(program)
  local paths = {}
  for _, spec in ipairs(field(program.signature, "input_specs", "table", program.path)) do
    local kind, s = union(spec, program.path)
    if kind == "parameter" then paths[s.arg.name] = s.parameter_name end
  end
  return paths
end

-- The graph without graphs in it, with patterns of nodes as one operator, and without nodes that change
-- nothing. sizes: what the plan gives symbols. Also the symbols, the parts of weights, and which weights are
-- those of linear layers.
local function flat_graph(program, outputs, sizes)
  local metas, path = {}, program.path
  local graph = {outputs = program.graph.outputs, inputs = program.graph.inputs, tensor_values = metas}
  local nodes = torch.inlined(program.graph, metas, path)
  torch.fill_stacks(nodes)
  program.graph = graph
  local symbols = torch.find_symbols(program, torch.user_inputs(program), sizes)
  local shape_of, type_of = torch.sizes_by_name(program, symbols), torch.types_by_name(program)
  nodes = torch.live(torch.with_layers(torch.live(nodes, outputs), shape_of, type_of), outputs)
  local parts, linear = torch.find_parts(nodes, outputs, parameter_paths(program), shape_of)
  nodes = torch.live(torch.with_experts(nodes, shape_of), outputs)
  graph.nodes = torch.live(torch.with_patterns(nodes, shape_of, type_of), outputs)
  return graph, symbols, parts, linear
end

local PROJECTIONS = {Linear = true, Conv1D = true, MultiheadAttention = true}

-- Projections that make several things at once, as q, k and v: auto() cuts them part by part.
local function note_parts(listed, modules)
  for _, m in ipairs(listed) do
    if m.parts and PROJECTIONS[m.class] then base.parts_of_archives[modules[m.path]] = m.parts end
  end
end

-- Tells of numbers that have another precision here.
local function note_precision(program)
  for _, number in ipairs{6, 8} do
    for _, meta in pairs(program.graph.tensor_values) do
      if type(meta) == "table" and meta.dtype == number then
        core.note(string.format("%s has tensors of %s: they are computed in float32", program.path, torch.type_name(number)))
        break
      end
    end
  end
end

-- Inputs that have the name of one of the model's own parameters or buffers get another one, since a step knows both by their
-- names. Gives the names of the latter.
local function name_inputs(inputs, root)
  local own, taken = {}, {}
  for i, p in ipairs(root.parameters) do own[i], taken[p.name] = p.name, true end
  local function is_input(name)
    for _, input in ipairs(inputs) do
      if input.name == name then return true end
    end
    return false
  end
  for _, input in ipairs(inputs) do
    local name = input.name
    while taken[name] or name ~= input.name and is_input(name) do name = name .. "_input" end
    input.name = name
  end
  return own
end

-- torch_export(path, {batch = 8}): the module, and what it takes and gives. Its forward takes the
-- exported inputs in their order, and returns the outputs. The second table gives sizes that were
-- exported as symbols. The second result: {inputs = {{name =, shape =, dtype =, below =} ...},
-- outputs = the same, modules = {{path =, class =, parts =} ...}: those that hold weights; parts: the sizes
-- of the parts in which the outputs of its weight are read, if they are; lists = {path ...}: of the
-- ModuleLists; parameters = {name ...}: of the root's own parameters and buffers}.
function base.torch_export(path, sizes)
  base.expect(path, "string", "the path that torch_export is given")
  if sizes ~= nil then base.expect(sizes, "table", "the sizes that torch_export is given") end
  if base.begun then fail("torch_export comes before train and infer") end
  local program = torch.read(path)
  local outputs = output_names(program)
  local graph, symbols, parts, linear = flat_graph(program, outputs, sizes)
  torch.report_missing(torch.check_operators(graph.nodes), path)
  note_precision(program)
  local root = torch.new_node()
  local parameters, others = torch.take_inputs(program, root, names_used(graph))
  local inputs, paths = torch.user_inputs(program), parameter_paths(program)
  for _, node in ipairs(graph.nodes) do
    for _, entry in ipairs(torch.stack_of(node)) do
      if entry.path ~= "" then torch.node_at(root, entry.path).class = entry.class else root.class = entry.class end
    end
  end
  torch.name_linear_layers(root, linear)
  local about = {inputs = torch.described(program, inputs, symbols),
    outputs = torch.described(program, outputs, symbols), modules = torch.listed_modules(root, parts)}
  about.parameters = name_inputs(about.inputs, root)
  core.weights_of(path)
  local twins, layout = torch.inputs_in_one_memory(program), torch.layouts_by_name(program, symbols)
  local modules = {}
  local self = torch.build(root, modules, "")
  about.lists = torch.lists_of(modules)
  note_parts(about.modules, modules)
  local calls = torch.nest(graph.nodes)
  torch.find_edges(calls, outputs)
  function self.forward(_, ...)
    local given, values = table.pack(...), {}
    for name, tensor in pairs(parameters) do
      local other = others[name]
      values[name] = other == "complex64" and base.torch_operators.view_as_complex{self = tensor}
        or other and raw.to(tensor, other) or tensor
    end
    local n = 0
    for _, name in ipairs(inputs) do
      if name then
        n = n + 1
        values[name] = given[n]
        local want = about.inputs[n]
        if not core.is_tensor(given[n]) or not base.same_shape(core.shape(given[n]), want.shape) then
          fail("torch_export: input '%s' of %s has the shape %s", want.name, path,
            base.shape_text(want.shape))
        end
      end
    end
    if given.n ~= n then
      fail("torch_export: the model of %s takes %d inputs, not %d", path, n, given.n)
    end
    local shared = torch.changes_in_place(graph.nodes) and torch.new_changes{path = path, layout = layout, parameters = paths,
      twins = twins, needs_gradient = base.training and torch.trained_parameters(program) or {}}
    values[torch.SHARED], values[torch.LAYOUT] = shared or nil, layout
    torch.run_call(calls, modules, parameters, values, path)
    core.at_node()
    local results = {}
    for i, name in ipairs(outputs) do
      if shared then torch.before_read(name, values, shared) end
      local v = values[name]
      results[i] = constants.is(v) and constants.tensor(v) or v
    end
    return table.unpack(results, 1, #outputs)
  end
  return self, about
end
