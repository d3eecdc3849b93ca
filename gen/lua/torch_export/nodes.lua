-- nodes.lua: the graph of an exported program: which operators it has, what its nodes read, and
-- the calls of modules that they belong to.
local _, base = ...
local fail, operators, torch = base.fail, base.torch_operators, base.torch
local field, stack_of = torch.field, torch.stack_of

local short = torch.short

-- The operator that gives the results of a target, or nil: one that changes a tensor in place gives its new value.
local function operator_of(target)
  local name = short(target)
  if name ~= target and string.match(target, "[._]out$") or torch.NO_FORM[name] then return nil end
  if operators[name] then return name end
  local base_name = torch.is_in_place(name) and string.match(name, "^(.-[^_])_$")
  return base_name and operators[base_name] and base_name or nil
end

-- The names of values that an argument mentions.
local function each_name(arg, f)
  local kind, v
  for key, held in pairs(arg) do kind, v = key, held end
  if kind == "as_tensor" then
    f(v.name)
  elseif (kind == "as_sym_int" or kind == "as_sym_float" or kind == "as_sym_bool") and v.as_name then
    f(v.as_name)
  elseif kind == "as_tensors" then
    for _, t in ipairs(v) do f(t.name) end
  elseif kind == "as_optional_tensors" or kind == "as_sym_ints" then
    for _, t in ipairs(v) do
      if t.as_tensor then f(t.as_tensor.name) elseif t.as_name then f(t.as_name) end
    end
  end
end

local function each_input(node, f)
  for _, input in ipairs(node.inputs) do each_name(input.arg, f) end
end

-- ---------------------------------------------------------------------------- graphs within graphs

-- Calls of a graph: its place among the arguments.
local GRAPH_CALLS = {
  ["torch.ops.higher_order.wrap_with_set_grad_enabled"] = true,
  ["torch.ops.higher_order.wrap_with_autocast"] = true,
}

-- The argument with names as `names` has them: {as_tensor = {name = "x"}}. A name may be replaced by another,
-- or for a number.
local function renamed(arg, names)
  local kind, v
  for key, held in pairs(arg) do kind, v = key, held end
  local function symbol(s)
    local n = s.as_name and names[s.as_name]
    if math.type(n) == "integer" then return {as_int = n} end
    return n and {as_name = n} or s
  end
  local function tensor(t) return {name = names[t.name] or t.name} end
  local list = {}
  if kind == "as_tensor" then return {as_tensor = tensor(v)} end
  if kind == "as_sym_int" or kind == "as_sym_float" or kind == "as_sym_bool" then return {[kind] = symbol(v)} end
  if kind == "as_tensors" or kind == "as_sym_ints" then
    for i, t in ipairs(v) do list[i] = kind == "as_tensors" and tensor(t) or symbol(t) end
    return {[kind] = list}
  end
  if kind == "as_optional_tensors" then
    for i, t in ipairs(v) do list[i] = t.as_tensor and {as_tensor = tensor(t.as_tensor)} or t end
    return {[kind] = list}
  end
  return arg
end

local function renamed_all(list, names)
  local new = {}
  for i, arg in ipairs(list) do new[i] = renamed(arg, names) end
  return new
end

local GRAD_MODE = "torch.ops.higher_order.wrap_with_set_grad_enabled"

-- A node of a call's graph as one of the graph that calls it: `here` has the new names.
local function moved_node(node, call, here)
  local inputs, is_no_grad = {}, node.is_no_grad
  for i, input in ipairs(node.inputs) do inputs[i] = {name = input.name, arg = renamed(input.arg, here)} end
  if is_no_grad == nil and call.target == GRAD_MODE and call.inputs[1] then is_no_grad = not call.inputs[1].arg.as_bool end
  return {target = node.target, inputs = inputs, outputs = renamed_all(node.outputs, here), is_no_grad = is_no_grad,
    metadata = node.metadata and node.metadata.nn_module_stack and node.metadata or call.metadata}
end

-- Whether the value is one from outside of the nodes, perhaps after a change in place.
local function is_outer(nodes, name)
  for i = #nodes, 1, -1 do
    local makes = false
    for _, out in ipairs(nodes[i].outputs) do each_name(out, function(own) makes = makes or own == name end) end
    if makes then
      local target = short(nodes[i].target)
      if not torch.is_in_place(target) and target ~= "alias" or torch.RENAMED[target] then return false end
      name = nodes[i].inputs[1] and nodes[i].inputs[1].arg.as_tensor and nodes[i].inputs[1].arg.as_tensor.name
    end
  end
  return true
end

-- The effect of a call on a result of its graph: no gradient flows out of torch.no_grad() to values made there.
local function way_out(call, nodes, result, path)
  local first = call.inputs[1] and call.inputs[1].arg.as_bool
  if call.target == GRAD_MODE then
    local keeps = first or result.as_tensor and is_outer(nodes, result.as_tensor.name)
    return keeps and "torch.ops.aten.alias.default" or "torch.ops.aten.detach.default"
  end
  local enabled = call.inputs[3] and call.inputs[3].arg.as_bool
  if enabled then
    fail("torch_export: %s has a region of torch.autocast, whose casts are not in the file: use "
      .. "mixed_precision in the plan instead", path)
  end
  return "torch.ops.aten.alias.default"
end

local inlined

-- Adds the nodes of the call's graph to the list. number: of the call, for names that are its own.
local function add_call(list, call, number, metas, path)
  local graph, given, names = nil, {}, {}
  for _, input in ipairs(call.inputs) do
    if input.arg.as_graph then graph = input.arg.as_graph.graph elseif graph then given[#given + 1] = input.arg end
  end
  if not graph then torch.damaged(path, "a call of no graph") end
  for i, input in ipairs(graph.inputs) do
    local arg = given[i] or torch.damaged(path, "a call with too few arguments")
    local _, own = torch.union(input, path)
    local _, outer = torch.union(arg, path)
    local name = type(own) == "table" and (own.name or own.as_name)
    if name then
      names[name] = type(outer) ~= "table" and outer or outer.name or outer.as_name or outer.as_int
    end
  end
  local nodes = inlined(graph, metas, path)
  for _, node in ipairs(nodes) do
    for _, out in ipairs(node.outputs) do
      each_name(out, function(name)
        local new = string.format("%s.%d", name, number)
        names[name], metas[new] = new, metas[name]
      end)
    end
    list[#list + 1] = moved_node(node, call, names)
  end
  for i, out in ipairs(call.outputs) do
    local from = graph.outputs[i] or torch.damaged(path, "a call with too few results")
    list[#list + 1] = {target = way_out(call, nodes, from, path), inputs = {{name = "self", arg = renamed(from, names)}}, outputs = {out},
      metadata = call.metadata}
  end
end

local calls_made = 0

-- The nodes of the graph, with those of its calls in their place. metas: the known facts of each
-- value, by name.
function inlined(graph, metas, path)
  local list = {}
  for name, meta in pairs(field(graph, "tensor_values", "table", path)) do metas[name] = meta end
  for _, node in ipairs(graph.nodes) do
    if GRAPH_CALLS[node.target] then
      calls_made = calls_made + 1
      add_call(list, node, calls_made, metas, path)
    else
      list[#list + 1] = node
    end
  end
  return list
end

-- The nodes whose results are read, or that may change a value in place.
local function live(nodes, outputs)
  local read, kept = {}, {}
  for _, name in ipairs(outputs) do read[name] = true end
  for i = #nodes, 1, -1 do
    local node = nodes[i]
    local is_read, count = torch.changes(node), 0
    for _, out in ipairs(node.outputs) do
      each_name(out, function(name)
        count = count + 1
        is_read = is_read or read[name]
        node.reads_further = node.reads_further or count > 1 and read[name] or nil -- of its results another than the first
      end)
    end
    if is_read then
      each_input(node, function(name) read[name] = true end)
      kept[#kept + 1] = node
    end
  end
  for i = 1, #kept // 2 do kept[i], kept[#kept + 1 - i] = kept[#kept + 1 - i], kept[i] end
  return kept
end

-- --------------------------------------------------------------------------------- what is missing

-- All operators that are missing, with counts and the Python line of the first.
local function check_operators(nodes)
  local missing = {}
  for _, node in ipairs(nodes) do
    local target = node.target
    if not operator_of(target) then
      if not missing[target] then
        missing[target] = {count = 0, trace = node.metadata and node.metadata.stack_trace}
        missing[#missing + 1] = target
      end
      missing[target].count = missing[target].count + 1
    end
  end
  return missing
end

-- Operators that core ATen writes by others, which tpgen has (tests/golden/torch_export/make.py, `decomposed`), and those
-- that it keeps, or writes by others that tpgen lacks.
local DECOMPOSED, KEPT, RANDOM = {}, {}, {}
local function note_names(names, list)
  for name in string.gmatch(list, "%S+") do names[name] = true end
end
note_names(DECOMPOSED, "fft_hfft fft_hfft2 fft_hfftn fft_ihfft fft_ihfft2 fft_ihfftn nanquantile pad_sequence")
note_names(KEPT, "linalg_lu_factor linalg_lu_solve linalg_eig linalg_eigvals linalg_householder_product linalg_tensorinv linalg_tensorsolve segment_reduce max_unpool3d "
  .. "adaptive_max_pool3d mode nanmedian signbit nextafter gcd frexp special_i0 special_i1 special_i0e special_log_ndtr "
  .. "special_erfcx special_bessel_j0 special_zeta special_gammainc kaiser_window combinations masked_select _unique2 put put_ "
  .. "as_strided_scatter histogram fake_quantize_per_tensor_affine fake_quantize_per_channel_affine torch.ops.higher_order.cond")
note_names(RANDOM, "poisson binomial geometric_ random_ rrelu_with_noise")

-- What would help: said where all that is missing is of one kind.
local function help_for(missing)
  local function all_in(names)
    for _, target in ipairs(missing) do
      if not names[short(target)] then return false end
    end
    return true
  end
  if all_in(RANDOM) then
    return ". tpgen does not draw numbers of this distribution: make them an input of the model, which run.sh --data gives"
  end
  if all_in(DECOMPOSED) then
    return ". The archive of exported.run_decompositions() has others in their place, which tpgen has. But PyTorch drops "
      .. "detach() and no_grad() in it: where the model has them, its gradients are others"
  end
  return all_in(KEPT) and ". run_decompositions() does not help" or ""
end

local function report_missing(missing, path)
  if #missing == 0 then return end
  local list = {}
  for i, target in ipairs(missing) do
    list[i] = string.format("%s (%d)", target, missing[target].count)
  end
  local trace = missing[missing[1]].trace
  local where = ""
  if type(trace) == "string" then
    local file, line = string.match(trace, '.*File "([^"]*)", line (%d+)')
    if file then where = string.format("; the first is from %s:%s", file, line) end
  end
  fail("torch_export: %s needs operators that tpgen does not have: %s%s%s", path,
    table.concat(list, ", "), where, help_for(missing))
end

-- ------------------------------------------------------------------------------- calls of modules

-- The nodes as nested calls: {path =, key =, items = {node or call ...}}.
local function nest(nodes)
  local root = {key = "", path = "", items = {}}
  local open = {root}
  for _, node in ipairs(nodes) do
    local stack = stack_of(node)
    local from = stack[1] and stack[1].path == "" and 2 or 1
    local depth = 1
    while open[depth + 1] and stack[from + depth - 1] and open[depth + 1].key == stack[from + depth - 1].key do
      depth = depth + 1
    end
    for i = #open, depth + 1, -1 do open[i] = nil end
    for i = from + depth - 1, #stack do
      local call = {key = stack[i].key, path = stack[i].path, items = {}}
      local above = open[#open].items
      above[#above + 1] = call
      open[#open + 1] = call
    end
    local items = open[#open].items
    items[#items + 1] = node
  end
  return root
end

-- Of each call: the names that it reads from outside, and its names that are read after it.
local function find_edges(root, outputs)
  local last_read, order = {}, 0
  local function number(call)
    call.first = order + 1
    for _, item in ipairs(call.items) do
      if item.items then
        number(item)
      else
        order = order + 1
        each_input(item, function(name) last_read[name] = order end)
      end
    end
    call.last = order
  end
  number(root)
  for _, name in ipairs(outputs) do last_read[name] = math.maxinteger end
  local function edges(call, above)
    call.reads, call.gives = {}, {}
    local made, seen = {}, {}
    local function visit(item)
      if item.items then
        for _, inner in ipairs(item.items) do visit(inner) end
        return
      end
      each_input(item, function(name)
        if not made[name] and not seen[name] then
          seen[name] = true
          call.reads[#call.reads + 1] = name
        end
      end)
      for _, out in ipairs(item.outputs) do
        each_name(out, function(name)
          made[name] = true
          if (last_read[name] or 0) > call.last then call.gives[#call.gives + 1] = name end
        end)
      end
    end
    for _, item in ipairs(call.items) do visit(item) end
    for _, item in ipairs(call.items) do
      if item.items then edges(item, call) end
    end
  end
  edges(root)
end

torch.operator_of = operator_of
torch.each_name, torch.each_input, torch.inlined, torch.live = each_name, each_input, inlined, live
torch.check_operators, torch.report_missing = check_operators, report_missing
torch.nest, torch.find_edges = nest, find_edges
