-- op_propagation.lua: what a plan writes for the operators that tests/golden/op_propagation.tsv
-- names, by their names without what follows the dot. test_op_propagation.c adds the end, which
-- calls one of them. What a plan cannot write, the backward's operators, is in the test itself.
local operators = {}
local types = {} -- of an operator's tensors that are not float32

local function as(name, f)
  for each in string.gmatch(name, "%S+") do operators[each] = f end
end

-- Those that F has under the same name.
local same = [[relu silu gelu sigmoid tanh exp log sqrt rsqrt square neg abs sin cos pow where
  maximum minimum eq ne lt le gt ge logical_and logical_or logical_not softmax log_softmax
  sum mean amax amin max min argmax argmin cumsum matmul linear unsqueeze squeeze expand permute
  transpose t slice select split chunk narrow cat stack gather index_select scatter scatter_add
  index_add tril triu topk sort argsort masked_fill flatten unflatten]]
for name in string.gmatch(same, "%S+") do operators[name] = F[name] end

-- ------------------------------------------------------------------------------ element by element

as("add", function(a, b) return a + b end)
as("sub", function(a, b) return a - b end)
as("rsub", function(a, b) return b - a end)
as("mul", function(a, b) return a * b end)
as("div", function(a, b) return a / b end)
as("reciprocal", function(x) return 1 / x end)
as("clamp", function(x, least, most)
  if least then x = F.maximum(x, least) end
  return most and F.minimum(x, most) or x
end)
as("clamp_min", F.maximum)
as("clamp_max", F.minimum)
as("log1p", function(x) return F.log(x + 1) end)
as("leaky_relu", function(x, slope) return F.where(x:gt(0), x, x * (slope or 0.01)) end)
as("bitwise_and", F.logical_and)
as("bitwise_or", F.logical_or)
as("bitwise_not", F.logical_not)
types.where, types.masked_fill = {"bool"}, {nil, "bool"}
for name in string.gmatch("logical_and logical_or bitwise_and bitwise_or", "%S+") do
  types[name] = {"bool", "bool"}
end
types.logical_not, types.bitwise_not = {"bool"}, {"bool"}

-- A copy is the value itself, and so is what has the type already.
as("clone _to_copy detach alias contiguous lift_fresh view_as", function(x) return x end)

-- --------------------------------------------------------------------------- products, reductions

as("mm bmm mv dot", F.matmul)
as("addmm addmv baddbmm", function(c, a, b) return a:matmul(b) + c end)
as("var", function(x, dims) return x:var(dims) end)
as("std", function(x, dims) return x:var(dims):sqrt() end)
as("var_mean", function(x, dims) return x:var(dims), x:mean(dims) end)
as("linalg_vector_norm norm", F.norm)
as("logsumexp", function(x, dims, keep) return x:logsumexp(dims[1], keep) end)

-- ---------------------------------------------------------------- softmax, losses, normalisation

as("_softmax _safe_softmax", function(x, dim) return x:softmax(dim) end)
as("_log_softmax", function(x, dim) return x:log_softmax(dim) end)
as("_softmax_backward_data", function(g, y, dim) return (g - (g * y):sum(dim, true)) * y end)
as("_log_softmax_backward_data", function(g, y, dim) return g - y:exp() * g:sum(dim, true) end)

-- The class to be ignored, -100, is none that there is.
local reductions = {[0] = "none", "mean", "sum"}
as("nll_loss_forward nll_loss", function(x, target, _, how)
  return x:nll_loss(target, {reduction = reductions[how or 1]})
end)
as("cross_entropy_loss cross_entropy", function(x, target, _, how)
  return x:cross_entropy(target, {reduction = reductions[how or 1]})
end)
for name in string.gmatch("nll_loss_forward nll_loss cross_entropy_loss cross_entropy", "%S+") do
  types[name] = {nil, "int32"}
end
as("mse_loss", function(x, target, how)
  return x:mse_loss(target, {reduction = reductions[how or 1]})
end)

as("native_layer_norm layer_norm", F.layer_norm)
as("rms_norm _fused_rms_norm", F.rms_norm)

as("_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
  .. "_scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_for_cpu "
  .. "scaled_dot_product_attention",
  function(q, k, v) return F.scaled_dot_product_attention(q, k, v) end)

-- ------------------------------------------------------------------------------------------ views

as("view _unsafe_view reshape", F.view)
as("split_with_sizes", F.split)
as("unbind", function(x, dim)
  local list = {}
  for i = 1, x:size(dim or 0) do list[i] = x:select(dim or 0, i - 1) end
  return table.unpack(list)
end)
as("constant_pad_nd pad", F.pad)

-- ----------------------------------------------------------------------------------------- indices

as("embedding", function(weight, ids) return F.embedding(ids, weight) end)
for name in string.gmatch("embedding gather index_select scatter scatter_add index_add", "%S+") do
  types[name] = {nil, "int32"}
end

-- ------------------------------------------------------------------------------- made of nothing

as("zeros_like empty_like", function(x) return F.zeros(x:size()) end)
as("ones_like", function(x) return F.ones(x:size()) end)
as("full_like", function(x, value) return F.full(x:size(), value) end)
as("new_zeros new_empty", function(_, sizes) return F.zeros(sizes) end)
as("new_ones", function(_, sizes) return F.ones(sizes) end)
as("new_full", function(_, sizes, value) return F.full(sizes, value) end)

-- ------------------------------------------------------------------------------------------ images

as("convolution conv2d", function(x, weight, bias, stride, padding, dilation, _, _, groups)
  return F.conv2d(x, weight, bias,
    {stride = stride, padding = padding, dilation = dilation, groups = groups})
end)
as("max_pool2d_with_indices max_pool2d", function(x, kernel, stride, padding)
  return F.max_pool2d(x, kernel, {stride = stride, padding = padding})
end)

-- ------------------------------------------------------------------------------------ the program

-- Calls the operator on the tensors of these shapes, t1, t2, ...; its results are called o1, o2 ...
-- call: gives the arguments from the tensors. whole: which of them are made whole first.
local function program(name, shapes, whole, call)
  local f = operators[name]
  if not f then error("no plan is known for the operator " .. name) end
  local Model = nn.module("Model", function(self)
    function self:forward(x) return x end
  end)
  device_mesh{{"a", args.ranks}}
  local batch = {}
  for i, shape in ipairs(shapes) do
    local type_name = types[name] and types[name][i]
    local sizes = {table.unpack(shape)}
    sizes.dtype = type_name
    batch["t" .. i] = type_name and zeros(sizes) or randn(sizes)
  end
  return infer{model = Model(), batch = batch, outputs = function(_, given)
    local tensors, outputs = {}, {}
    for i = 1, #shapes do
      tensors[i] = whole[i] and given["t" .. i]:replicate() or given["t" .. i]
    end
    for i, x in pairs{f(call(tensors))} do outputs["o" .. i] = x end
    return outputs
  end}
end

