-- hints.lua: what PyTorch has and plans have not, with what to do instead: said where a plan names it.
local core, base, plan = ...

local BY_VALUE = "its size follows from numbers, and a plan's shapes are known before there are any: F.where keeps the shape"
local NUMBERS = "a plan describes a program that runs later, and sees no numbers: metrics and outputs of infer bring them out"
local DEVICE = "--target and the mesh say where tensors are"
local COMPLEX = "there are no complex numbers in plans: carry the real and the imaginary part as two tensors"
local TYPES = "types are float32, bfloat16, int32, int64 and bool: x:float(), x:to(\"int64\")"
local BACKWARD = "train{...} derives the gradients, from the loss that it is given"
local DRAW = "F.randn_like(x), F.rand_like(x) and F.bernoulli(p) draw anew in each step; parameters begin by nn.init"
local STORAGE = "tpgen chooses the order in memory"
local ARCHIVE = "PyTorch has it, and plans have not: make it of others, or take an archive of torch.export (plans/torch_export.lua)"
local GRAPH = "write its forward in the plan, or take an archive of torch.export (plans/torch_export.lua)"
local HOOK = "a forward that is assigned may do what a hook does: function module:forward(x) ... end"
local PARAMETERS = "train{optimizer = ...} takes all parameters; store_frozen, parallelize and optimizers take patterns of names"
local LAZY = "give its sizes: use the class without 'Lazy'"

local hints = {tensor = {}, F = {}, nn = {}, module = {}}
local function note(of, text, names)
  for name in string.gmatch(names, "%S+") do hints[of][name] = text end
end

note("tensor", BY_VALUE, "nonzero nonzero_static argwhere masked_select unique unique_consecutive")
note("tensor", NUMBERS, "item tolist numpy data_ptr is_nonzero equal allclose")
note("tensor", DEVICE, "cuda cpu xpu ipu mtia pin_memory get_device record_stream device is_cuda is_cpu")
note("tensor", COMPLEX, "real imag conj conj_physical angle cfloat cdouble chalf resolve_conj resolve_neg H mH is_complex")
note("tensor", TYPES, "double half short char byte type")
note("tensor", BACKWARD, "backward grad grad_fn retain_grad register_hook requires_grad is_leaf register_post_accumulate_grad_hook")
note("tensor", DRAW, "multinomial bernoulli_ normal_ uniform_ exponential_ random_ log_normal_ cauchy_ geometric_")
note("tensor", STORAGE, "stride storage storage_offset untyped_storage is_contiguous element_size as_strided resize_ set_ data layout nbytes "
  .. "itemsize new share_memory_")
note("tensor", "x:t() swaps the two dimensions of a matrix, x:transpose(-2, -1) those of each", "T mT")
note("tensor", "x:dim() counts the dimensions", "ndim")
note("tensor", "F.zeros{...} makes one", "new_empty new_empty_strided new_tensor")
note("tensor", "there are no bits of whole numbers here: x:logical_and(y), of truths",
  "bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift")
note("tensor", "x[...] is read and not assigned: F.where(mask, value, x), x:index_copy(dim, index, y), F.cat and F.pad put parts together",
  "index_put index_put_ copy_ fill_ select_scatter slice_scatter diagonal_scatter put put_ fill_diagonal_")
note("tensor", ARCHIVE, "addbmm_ bincount_ cholesky cholesky_inverse cholesky_solve corrcoef cov dsplit hsplit vsplit erfcx frexp gcd lcm "
  .. "geqrf histc histogram i0 igamma igammac index_reduce istft stft logaddexp2 lu lu_solve lstsq map_ matrix_exp mode msort mvlgamma "
  .. "nanmedian nanquantile nextafter orgqr ormqr pinverse polygamma qr quantile renorm sgn signbit slogdet svd take "
  .. "triangular_solve isreal sum_to_size diagflat as_strided_scatter symeig eig")

note("tensor", "all tensors are dense", "to_sparse to_sparse_coo to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc to_dense to_mkldnn "
  .. "to_padded_tensor sparse_dim sparse_mask sparse_resize dense_dim coalesce indices values is_sparse is_nested is_quantized "
  .. "crow_indices col_indices ccol_indices row_indices dequantize int_repr q_scale q_zero_point is_coalesced")
note("tensor", "x:split(sizes, dim) takes a list, too", "split_with_sizes unsafe_split unsafe_split_with_sizes unsafe_chunk")
note("tensor", "it is x:expand(sizes)", "broadcast_to")
note("tensor", "it is F.outer(x, y)", "ger")
note("F", ARCHIVE, "ctc_loss multi_head_attention_forward triplet_margin_with_distance_loss adaptive_max_pool3d fractional_max_pool2d "
  .. "fractional_max_pool3d max_unpool1d max_unpool2d max_unpool3d lp_pool3d rrelu conv_tbc grouped_mm scaled_mm scaled_grouped_mm "
  .. "linear_cross_entropy native_channel_shuffle")
note("F", "it is F.interpolate", "upsample upsample_nearest upsample_bilinear")
note("F", "its indices are not given: F.max_pool2d and its like give the values",
  "max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool1d_with_indices "
  .. "adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices")
note("nn", LAZY, "LazyLinear LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d "
  .. "LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d")
note("nn", "nn.BatchNorm1d, nn.BatchNorm2d and nn.BatchNorm3d take the statistics of the whole batch, over all ranks", "SyncBatchNorm")
note("nn", "the mesh and the styles say how a model is parallel", "DataParallel")
note("nn", 'write nn.module("Name", function(self) ... function self:forward(x) ... end end)', "Module Container")
note("nn", GRAPH, "CTCLoss AdaptiveLogSoftmaxWithLoss AdaptiveMaxPool3d CrossMapLRN2d FractionalMaxPool2d FractionalMaxPool3d LPPool3d "
  .. "MaxUnpool1d MaxUnpool2d MaxUnpool3d RReLU RNNBase RNNCellBase NLLLoss2d TripletMarginWithDistanceLoss LinearCrossEntropyLoss "
  .. "ReflectionPad3d ReplicationPad3d CircularPad3d")

note("module", PARAMETERS, "parameters named_parameters buffers named_buffers zero_grad get_parameter get_buffer")
note("module", "its members are attributes: self.layers, ipairs(self.layers)",
  "modules named_modules children named_children get_submodule set_submodule")
note("module", "assign it: self.name = module", "add_module register_module")
note("module", "mixed_precision(module, {param_dtype = \"bfloat16\"}) computes in another type", "half float double bfloat16 to type")
note("module", DEVICE, "cuda cpu xpu ipu mtia to_empty share_memory")
note("module", "run.sh takes --weights, --load and --save", "state_dict load_state_dict get_extra_state set_extra_state "
  .. "register_state_dict_pre_hook register_state_dict_post_hook register_load_state_dict_pre_hook register_load_state_dict_post_hook")
note("module", HOOK, "register_forward_hook register_forward_pre_hook register_backward_hook register_full_backward_hook "
  .. "register_full_backward_pre_hook")
note("module", "go through its members, and set what they begin with by nn.init", "apply")
note("module", "a program is compiled anyway", "compile")

local methods, F = core.methods, plan.F
local function of_tensor(name)
  local hint = hints.tensor[name]
  if hint then return hint end
  local plain = string.match(name, "^(.+)_$")
  if plain and rawget(methods, plain) then return string.format("tensors do not change: x = x:%s(...)", plain) end
  if hints.tensor[plain] then return hints.tensor[plain] end
  if plain == "zero" then return "tensors do not change: F.zeros_like(x)" end
  if rawget(F, name) then return string.format("it is a function: F.%s(...)", name) end
end
local function of_functions(name)
  local hint = hints.F[name] or hints.tensor[name]
  if hint then return hint end
  local plain = string.match(name, "^(.+)_$")
  if plain and rawget(F, plain) then return string.format("tensors do not change: y = F.%s(...)", plain) end
  if rawget(methods, name) then return string.format("it is a method: x:%s(...)", name) end
end

core.forbid_absent(methods, "a tensor", of_tensor)
core.forbid_absent(F, "F", of_functions)
core.forbid_absent(plan.nn, "nn", function(name) return hints.nn[name] end)
core.set_method_hints(hints.module)
