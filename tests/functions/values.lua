-- What functions give, in numbers: values.tsv holds what PyTorch makes of the same inputs.
return infer{
  model = nn.Identity(),
  batch = {
    x = randn{4, 6}, row = randn{6}, column = randn{4, 1}, cube = randn{2, 4, 6},
    ids = randint(4){4, 6}, classes = randint(6){2, 4}, mask = randint(2){4, 6, dtype = "bool"},
    q = randn{2, 4, 6, 8}, k = randn{2, 2, 5, 8}, v = randn{2, 2, 5, 8}, images = randn{2, 4, 6, 5},
    bias = randn{6, 5}, kernel = randn{6, 4, 3, 2}, kernel2 = randn{6, 2, 2, 2}, six = randn{6}, five = randn{5},
    table = randn{4, 3},
  },
  outputs = function(_, b)
    local x, row, column, cube, ids, mask = b.x, b.row, b.column, b.cube, b.ids, b.mask
    local largest, where_largest = cube:max(1)
    local smallest, where_smallest = x:min(-1, true)
    local top, where_top = x:topk(3)
    local low, where_low = x:topk(2, 0, false)
    local sorted, order = x:sort(0, true)
    local middle = select(2, x:split({1, 2, 1}, 0))
    local cos, sin = F.rotary_tables(6, 8, 500)
    local llama_cos, llama_sin = F.rotary_tables(5, 12, 500000, {rope_type = "llama3", factor = 8,
      low_freq_factor = 1, high_freq_factor = 4, original_max_position_embeddings = 8192})
    local _, linear_sin = F.rotary_tables(5, 12, 10000, {rope_type = "linear", factor = 4})
    local attend = F.scaled_dot_product_attention
    return {
      arithmetic = (2 - x) / (x + 3) * column - row / 4,
      integers = ids * 3 - 2, halves = ids / 2, bools = mask * x + mask,
      power = (x + 2) ^ 1.5, power_of_tensor = (x + 2) ^ row, power_of_number = 2 ^ x,
      abs_int = (ids - 2):abs(), gelu = x:gelu(), gelu_tanh = x:gelu("tanh"), rsqrt = (x + 2):rsqrt(),
      truncated = (x * 3):to("int32"), to_bool = x:relu():to("bool"),
      compared = F.where(ids:ge(2):logical_and(mask:logical_not()), x, -1),
      filled = x:masked_fill(mask, -5), maximum = x:maximum(row), minimum = x:minimum(0.25),
      sum = cube:sum({0, 2}), mean = cube:mean(-1, true), var = cube:var(1), var_all = cube:var(),
      var_biased = cube:var(1, false), var_of_all = cube:var(false), var_kept = cube:var(-1, true, true),
      var_correction = cube:var({0, 2}, {correction = 3, keepdim = true}), var_named = cube:var{unbiased = false},
      padded_constant = x:pad({1, 0}, "constant", 2), zeros = F.zeros{2, 3, dtype = "int32"} + 1,
      sum_bool = mask:sum(0), amax = cube:amax({0, 1}), amin = x:amin(),
      largest = largest, where_largest = where_largest, smallest = smallest,
      where_smallest = where_smallest, argmax = x:argmax(), argmin = cube:argmin(2),
      norm = x:norm(), norm1 = cube:norm(1, 1), norm3 = x:norm(3, 0), norm_inf = x:norm(math.huge, 1, true),
      norm_0 = mask:norm(0), norm_of_nothing = (x * 0):norm(2, 1),
      softmax = cube:softmax(1), log_softmax = (x * 50):log_softmax(-1), logsumexp = (x * 200):logsumexp(1),
      cumsum = cube:cumsum(1),
      cross_entropy = F.cross_entropy(cube * 9, b.classes),
      cross_entropy_none = F.cross_entropy(cube, b.classes, {reduction = "none"}),
      cross_entropy_ignore = F.cross_entropy(cube, b.classes, {ignore_index = 3}),
      cross_entropy_default = F.cross_entropy(cube, F.where(b.classes:gt(2), b.classes, -100)),
      cross_entropy_all = F.cross_entropy(cube, b.classes * 0 - 100, {reduction = "sum"}),
      nll_default = F.nll_loss(cube, F.where(b.classes:gt(2), b.classes, -100)),
      nll_sum = F.nll_loss(cube, b.classes, {reduction = "sum", ignore_index = 3}),
      mse = F.mse_loss(x, x:exp()),
      layer_norm = F.layer_norm(cube, {6}, row, b.six, 1e-3), layer_norm2 = F.layer_norm(cube, {4, 6}),
      rms_norm = F.rms_norm(cube, row, 1e-3),
      view = x:view(8, 3), view2 = cube:view(3, 16):t(), permuted = cube:permute(2, 0, 1),
      transposed = cube:transpose(0, -1), flat = cube:flatten(1), apart = x:unflatten(1, -1, 2),
      expanded = column:expand(2, 4, 3), middle = middle, chunk = select(3, cube:chunk(4, 2)),
      narrowed = cube:narrow(1, -3, 2), sliced = cube:slice(-1, 1, -1, 2), selected = cube:select(1, -2),
      cat = F.cat({x, column, x:narrow(1, 2, 1)}, 1), stack = F.stack({row, b.six}, 1),
      padded = x:pad({1, 2, 0, 3}, 1.5), padded2 = x:pad({[0] = {2, -1}}), tril = cube:tril(1),
      triu = x:triu(-1),
      gathered = x:gather(0, ids:narrow(1, 0, 5)), scattered = x:scatter(0, F.arange(3):view(3, 1):expand(3, 4), x * 10),
      scattered_number = row:scatter(0, F.arange(1, 6, 2), 9),
      scatter_add = x:scatter_add(0, ids:narrow(0, 0, 3), x), index_select = x:index_select(0, ids:select(0, 1)),
      index_add = x:index_add(0, ids:select(1, 0), x * 2), embedding = F.embedding(ids, b.table),
      one_hot = ids:select(0, 0):one_hot(4), top = top, where_top = where_top, low = low,
      where_low = where_low, sorted = sorted, order = order, argsort = x:argsort(),
      arange = F.arange(2, 9, 3), arange_float = F.arange(1, 0, -0.25), full = F.full({2, 2}, 2.5),
      product = x:matmul(cube:transpose(1, 2)), product2 = cube:unsqueeze(1):matmul(cube:transpose(1, 2)),
      product_row = cube:matmul(row), row_product = row:matmul(x:t()), dot = row:matmul(b.six),
      linear = F.linear(cube, b.bias:t(), b.five),
      einsum = F.einsum("bik,jk->jib", cube, x), einsum_own = F.einsum("bik,jl->bij", cube, x),
      einsum_outer = F.einsum("i,j->ji", row, b.six), einsum_all = F.einsum("ij,kl->lk", x, x),
      attention = attend(b.q, b.k, b.v, {causal = true}), attention_scale = attend(b.q, b.q, b.q, {scale = 0.7}),
      attention_mask = attend(b.q, b.k, b.v, {mask = b.bias:gt(-0.5)}),
      attention_blind = attend(b.q, b.k, b.v, {mask = b.bias:gt(-0.5):logical_and(F.arange(6):view(6, 1):ne(2))}),
      attention_blind_added = attend(b.q, b.k, b.v, {mask = b.bias:masked_fill(b.bias:gt(0.75), -math.huge)
        :masked_fill(F.arange(6):view(6, 1):eq(4), -math.huge)}),
      attention_added = attend(b.q, b.q, b.q, {mask = cube:select(0, 0):view(4, 6, 1):expand(4, 6, 6)}),
      cos = cos, sin = sin, llama_cos = llama_cos, llama_sin = llama_sin, linear_sin = linear_sin,
      rotary = b.q:rotary(cos, sin), rotary_pairs = b.q:rotary(cos, sin, {pairs = true}),
      conv = b.images:conv2d(b.kernel, b.six, {stride = {2, 1}, padding = {1, 0}}),
      conv_groups = b.images:conv2d(b.kernel2, nil, {groups = 2, dilation = 2}),
      pool = b.images:max_pool2d(2), pool_padded = b.images:max_pool2d({3, 2}, {stride = 1, padding = 1}),
    }
  end,
}
