-- views.lua: which operators of exported programs give views of their input and which change a tensor in place, and
-- the effect of the latter: a view is read anew if its base has changed, and a change of a view changes its base, too.
-- The tables hold all operators of PyTorch whose schema has an alias (Tensor(a), Tensor(a!)), and those that give
-- their own input under a schema that does not say so.
local _, base = ...
local torch = base.torch

local function set_of(names)
  local set = {}
  for name in string.gmatch(names, "%S+") do set[name] = true end
  return set
end

-- "torch.ops.aten.add.Tensor" -> "add"; "_operator.mul" stays.
local function short(target)
  local name = string.match(target, "^torch%.ops%.aten%.([^.]+)%.[^.]+$")
  return name or target
end

-- ------------------------------------------------------------------------------------------------ views

-- Always views of their first tensor.
local VIEWS = set_of("view view_as unflatten unsqueeze squeeze alias detach transpose swapaxes swapdims t numpy_T mT mH matrix_H "
  .. "adjoint permute movedim moveaxis select slice narrow expand expand_as broadcast_to split split_with_sizes "
  .. "unsafe_split unsafe_split_with_sizes unsafe_chunk chunk tensor_split hsplit vsplit dsplit unbind diagonal linalg_diagonal "
  .. "unfold as_strided view_as_complex view_as_real real imag conj _conj resolve_conj _neg_view resolve_neg positive lift_fresh _reshape_alias "
  .. "_unsafe_view atleast_1d atleast_2d atleast_3d broadcast_tensors meshgrid _autocast_to_full_precision "
  .. "_autocast_to_reduced_precision _fw_primal _grad_sum_to_size _indices indices _make_dual _ncf_unsqueeze _ncf_view "
  .. "_nested_get_values _nested_view_from_buffer _nested_view_from_jagged _sparse_broadcast_to "
  .. "_test_autograd_multiple_dispatch_view _unpack_dual _unwrap_optional _values values ccol_indices coalesce col_indices "
  .. "cpu crow_indices cuda pin_memory row_indices slice_inverse to_dense")

-- Views that change the shape or order of their own tensor: later nodes know it under the result's name.
local RENAMED = set_of("t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ detach_")

-- Changes whose functional form says something else.
local NO_FORM = set_of("as_strided_ resize_ resize_as_ set_ requires_grad_")

-- Whether a view of a tensor of these sizes and strides has the other shape, by PyTorch's rule (computeStride).
local function is_viewable(sizes, strides, shape)
  local at, of_tensor, of_view, stride = #shape, 1, 1, strides[#strides]
  for d = #sizes, 1, -1 do
    of_tensor = of_tensor * sizes[d]
    if d == 1 or sizes[d - 1] ~= 1 and strides[d - 1] ~= of_tensor * stride then
      while at >= 1 and (of_view < of_tensor or shape[at] == 1) do of_view, at = of_view * shape[at], at - 1 end
      if of_view ~= of_tensor then return false end
      of_tensor, of_view, stride = 1, 1, strides[d - 1]
    end
  end
  return #sizes == 0 or at == 0
end

local function same_list(a, b)
  if #a ~= #b then return false end
  for i, v in ipairs(a) do
    if b[i] ~= v then return false end
  end
  return true
end

local function argument(node, key)
  for _, input in ipairs(node.inputs) do
    if input.name == key then return input.arg end
  end
end

local function is_contiguous(layout)
  local stride = 1
  for d = #layout.sizes, 1, -1 do
    if layout.sizes[d] ~= 1 and layout.strides[d] ~= stride then return false end
    stride = stride * layout.sizes[d]
  end
  return true
end

-- Views of their first tensor or copies of it: of(node, from, to) says which, by what the archive knows of both
-- ({sizes =, strides =, type =}); nil: it cannot be known.
local function by_strides(_, from, to) return from and to and same_list(from.strides, to.strides) end
local function by_shape(_, from, to) return from and to and is_viewable(from.sizes, from.strides, to.sizes) end
local function by_type(node, from, to)
  local copies = argument(node, "copy")
  if copies and copies.as_bool then return false end
  if not from or not to then return nil end
  if from.type ~= to.type or not same_list(from.strides, to.strides) then return false end
  local format = argument(node, "memory_format")
  if format and format.as_memory_format ~= nil then return nil end
  return true
end
local function where_idle(node)
  local trains, p = argument(node, "train"), argument(node, "p")
  return trains ~= nil and trains.as_bool == false or p ~= nil and (p.as_float == 0 or p.as_int == 0)
end
local SOMETIMES = {
  reshape = by_shape, reshape_as = by_shape, flatten = by_shape, contiguous = by_strides, to = by_type,
  type_as = by_type, dropout = where_idle, feature_dropout = where_idle, alpha_dropout = where_idle,
  feature_alpha_dropout = where_idle,
  conj_physical = function(_, from) return from and from.type ~= torch.COMPLEX end,
  einsum = function(node)
    local list = argument(node, "tensors")
    if list and list.as_tensors and #list.as_tensors == 1 then return nil end
    return false
  end,
  sum_to_size = function(_, from, to) return from and to and same_list(from.sizes, to.sizes) end,
  ravel = function(_, from) return from and is_contiguous(from) end,
}

-- The tensor's name that the i-th result is a view of, or may be.
local function viewed(node, i)
  local arg = node.inputs[1] and node.inputs[1].arg
  if not arg then return nil end
  if arg.as_tensor then return arg.as_tensor.name end
  local list = arg.as_tensors
  if not list then list = argument(node, "tensors") and argument(node, "tensors").as_tensors end
  if not list then return nil end
  local one = #list == 1 and list[1] or list[i]
  return one and one.name
end

-- ---------------------------------------------------------------------------------------------- changes

-- Operators that change another tensor than their first one, under a name that does not say so.
local NORMS = {"running_mean", "running_var"}
local CHANGED = {
  batch_norm = NORMS, native_batch_norm = NORMS, cudnn_batch_norm = NORMS, miopen_batch_norm = NORMS,
  _native_batch_norm_legit = NORMS, _batch_norm_with_update = NORMS, _batch_norm_impl_index = NORMS, instance_norm = NORMS,
  rrelu_with_noise = {"noise"}, rrelu_with_noise_ = {"self", "noise"}, _cummax_helper = {"values", "indices"},
  _cummin_helper = {"values", "indices"}, _cudnn_attention_forward_no_dropout_inplace = {"out"},
  _flash_attention_forward_no_dropout_inplace = {"out"}, set_data = {"self"}, record_stream = {"self"},
  retain_grad = {"self"}, _fused_moving_avg_obs_fq_helper = {"running_min", "running_max", "scale", "zero_point"},
  fused_moving_avg_obs_fake_quant = {"running_min", "running_max", "scale", "zero_point"},
  _amp_foreach_non_finite_check_and_unscale_ = {"self", "found_inf"}, _amp_update_scale_ = {"self", "growth_tracker"},
  _fused_adagrad_ = {"self", "grads", "state_sums", "state_steps"}, _fused_sgd_ = {"self", "grads", "momentum_buffer_list"},
  _fused_adam_ = {"self", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"},
  _fused_adamw_ = {"self", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"},
}
local BITS = set_of("__iand__ __ior__ __ixor__ __ilshift__ __irshift__ __iadd__ __isub__ __imul__ __idiv__")
-- Calls that change nothing, of other libraries than aten.
local HARMLESS = {"^_operator%.", "^math%.", "^builtins%.", "^torch%.sym_", "^torch%._sym_", "^torch%.ops%.prims%.",
  "^torch%.ops%.transformers%.grouped_mm", "^torch%.ops%.higher_order%.auto_functionalized"}

-- Whether the name is that of a change in place: add_, but not __and__.
local function is_in_place(name) return string.match(name, "[^_]_$") ~= nil or BITS[name] == true end

-- The names of the arguments that the node changes; {} where it changes nothing, nil where nobody knows.
local function changed_arguments(node)
  local name, keys = short(node.target), {}
  if name == node.target and not string.match(name, "^torch%.ops%.aten%.") then
    for _, pattern in ipairs(HARMLESS) do
      if string.match(name, pattern) then return keys end
    end
    return nil
  end
  for _, input in ipairs(node.inputs) do
    if string.match(input.name, "^out%d*$") and (input.arg.as_tensor or input.arg.as_tensors) then keys[#keys + 1] = input.name end
  end
  if CHANGED[name] == NORMS then
    local trains = argument(node, "training") or argument(node, "use_input_stats") or argument(node, "train")
    local is_always = name == "_batch_norm_with_update"
    if not is_always and (not trains or not trains.as_bool) then return keys end
  end
  for _, key in ipairs(CHANGED[name] or {}) do
    local arg = argument(node, key)
    if arg and (arg.as_tensor or arg.as_tensors or arg.as_optional_tensor or arg.as_optional_tensors) then keys[#keys + 1] = key end
  end
  if not CHANGED[name] and is_in_place(name) and node.inputs[1] then keys[#keys + 1] = node.inputs[1].name end
  return keys
end

-- Whether the node changes a tensor, as far as anybody knows.
local function changes(node)
  local keys = changed_arguments(node)
  return not keys or #keys > 0
end

-- The names of the values that the node changes.
function torch.changed_values(node)
  local names = {}
  for _, key in ipairs(changed_arguments(node) or {}) do
    torch.each_name(argument(node, key), function(name) names[#names + 1] = name end)
  end
  return names
end

-- By name: the statistics that a batch norm in training updates, and does not read.
function torch.follows_statistics(node)
  local follows = {}
  if CHANGED[short(node.target)] == NORMS then
    for _, name in ipairs(torch.changed_values(node)) do follows[name] = true end
  end
  return follows
end

-- The name of the value whose storage the i-th result may share, or nil.
function torch.may_share(node, i)
  local name = short(node.target)
  if VIEWS[name] or SOMETIMES[name] or is_in_place(name) then return viewed(node, i) end
end

-- The same where it does share it; the second result: it may, and nobody can know.
function torch.shares(node, i, layout, out)
  local name = short(node.target)
  local from = torch.may_share(node, i)
  if not from or not SOMETIMES[name] then return from end
  local does = SOMETIMES[name](node, layout(from), layout(out))
  return does ~= false and from or nil, does == nil
end

torch.short, torch.is_in_place, torch.NO_FORM, torch.RENAMED = short, is_in_place, NO_FORM, RENAMED
torch.changes, torch.argument, torch.is_contiguous = changes, argument, is_contiguous
