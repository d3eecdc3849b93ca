-- unsupported_arguments.lua: arguments of PyTorch's that no function here supports. A parameter of such a name
-- keeps PyTorch's order of arguments, and its use is an error that gives the reason (keywords.c).
local core = ...

-- name, values that change nothing, why
for _, row in ipairs{
  {"inplace", "false", "a tensor never changes; leave it out: the program writes in place wherever it can"},
  {"out", "", "a function gives its result: write y = ..."},
  {"size_average", "true", 'it is reduction = "mean" or "sum"'},
  {"reduce", "true", 'of a loss it is reduction = "none"; of scatter, write scatter_add'},
  {"device", "", "the target is the command line's: --target"},
  {"layout", "strided", "all tensors are dense"},
  {"pin_memory", "false", "tpgen plans the memory"},
  {"requires_grad", "false", "nn.Parameter has a gradient, parameter:requires_grad_(false) has none"},
  {"memory_format", "contiguous_format preserve_format 0", "tpgen chooses the order in memory"},
  {"non_blocking", "true false", "tpgen orders the work"},
  {"copy", "true false", "a tensor never changes, so that a copy is the tensor"},
  {"_stacklevel", "1 2 3 4 5", "it is of Python's warnings"},
  {"max_norm", "", "rows are not scaled as they are read: scale the weight with F.norm"},
  {"scale_grad_by_freq", "false", "a row's gradient is the sum over its uses"},
  {"sparse", "false", "gradients are dense"},
  {"sparse_grad", "false", "gradients are dense"},
  {"return_indices", "false", "pooling gives only values"},
  {"proj_size", "0", "write a cell of your own with F.scan"},
  {"path", "", "one product has no other order"},
  {"_weight", "", "load it with --weights, or say init ="},
  {"_freeze", "false", "use module:requires_grad_(false)"},
  {"antialias", "false", "it is not done"},
  {"out_dtype", "", "a product has its operands' type: cast it, as in y:to(dtype)"},
  {"add_bias_kv", "false", "keys and values are those of the input"},
  {"add_zero_attn", "false", "keys and values are those of the input"},
  {"implicit", "false", "it is of PyTorch's own calls"},
  {"min_value", "", "PyTorch calls it min_val now"},
  {"max_value", "", "PyTorch calls it max_val now"},
} do
  core.refuse(row[1], row[2], row[3])
end
