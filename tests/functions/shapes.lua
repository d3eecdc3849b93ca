-- Every function, and what PyTorch makes of the same: the shape, and the type where it is not float32.
local function is(what, tensor, shape, dtype)
  local got = "[" .. table.concat(tensor.shape, ", ") .. "] " .. tensor.dtype
  local expected = "[" .. table.concat(shape, ", ") .. "] " .. (dtype or "float32")
  if got ~= expected then error(what .. ": " .. got .. ", not " .. expected) end
end

local function pointwise(b)
  local x, i, m = b.x, b.ids, b.mask                        -- [4, 6], int32 [4, 6], bool [4, 6]
  for _, name in ipairs{"abs", "exp", "log", "sqrt", "rsqrt", "square", "sin", "cos", "neg", "relu",
                        "gelu", "silu", "sigmoid", "tanh"} do
    is(name, F[name](x), {4, 6})
    is(name, x[name](x), {4, 6})
  end
  is("gelu tanh", x:gelu("tanh"), {4, 6})
  is("-x", -x, {4, 6})
  is("x + row", x + b.row, {4, 6})                          -- [6]
  is("column * row", b.column * b.row, {4, 6})              -- [4, 1]
  is("2 / x", 2 / x - 1, {4, 6})
  is("x / 2", x / 2, {4, 6})
  is("x ^ 2", x ^ 2, {4, 6})
  is("x ^ 3.5", x ^ 3.5, {4, 6})
  is("x ^ x", x ^ x, {4, 6})
  is("2 ^ x", 2 ^ x, {4, 6})
  is("pow", x:pow(2), {4, 6})
  is("add", x:add(1), {4, 6})
  is("maximum", x:maximum(b.row), {4, 6})
  is("minimum", F.minimum(x, 0), {4, 6})
  is("i + 1", i + 1, {4, 6}, "int32")
  is("i * 3", i * 3, {4, 6}, "int32")
  is("i * 0.5", i * 0.5, {4, 6})
  is("i / 2", i / 2, {4, 6})
  is("i + x", i + x, {4, 6})
  is("i ^ 2", i ^ 2, {4, 6}, "int32")
  is("abs(i)", i:abs(), {4, 6}, "int32")
  is("exp(i)", i:exp(), {4, 6})
  is("m * x", m * x, {4, 6})
  for _, name in ipairs{"eq", "ne", "lt", "le", "gt", "ge"} do
    is(name, x[name](x, 0), {4, 6}, "bool")
    is(name, F[name](i, 3), {4, 6}, "bool")
    is(name, x[name](x, b.row), {4, 6}, "bool")
  end
  is("and", m:logical_and(x:gt(0)), {4, 6}, "bool")
  is("or", F.logical_or(m, m), {4, 6}, "bool")
  is("not", m:logical_not(), {4, 6}, "bool")
  is("where", F.where(m, x, 0), {4, 6})
  is("where", F.where(m, i, 0), {4, 6}, "int32")
  is("where", F.where(m, x, i), {4, 6})
  is("where", F.where(b.column:gt(0), b.row, x), {4, 6})
  is("masked_fill", x:masked_fill(m, -math.huge), {4, 6})
  is("to", x:to("int32"), {4, 6}, "int32")
  is("to", x:to("bool"), {4, 6}, "bool")
  is("to", i:to("int64"), {4, 6}, "int64")
  is("cast", m:cast("float32"), {4, 6})
  is("detach", x:detach(), {4, 6})
  is("detach", x:sum():detach(), {})
  is("dropout", x:dropout(0.1), {4, 6})
  is("replicate", x:replicate(), {4, 6})
end

-- A number takes the type of what it meets, and so do whole numbers that meet bfloat16.
local function halves(b)
  local x, i, m, h = b.x, b.ids, b.mask, b.x:to("bfloat16")
  for what, y in pairs{
    ["h + 0.5"] = h + 0.5, ["0.5 - h"] = 0.5 - h, ["h * 3"] = h * 3, ["h / 3"] = h / 3,
    ["2 / h"] = 2 / h, ["h / h"] = h / h, ["h / i"] = h / i, ["h + i"] = h + i, ["h * m"] = h * m,
    ["h ^ 2"] = h ^ 2, ["h ^ 0.3"] = h ^ 0.3, ["2 ^ h"] = 2 ^ h, exp = h:exp(), gelu = h:gelu(),
    abs = h:abs(), maximum = h:maximum(0.1), where = F.where(m, h, 0.5),
    masked_fill = h:masked_fill(m, -math.huge), softmax = h:softmax(1), relu = h:relu(),
    full = F.full({4, 6}, 0.1, "bfloat16"), sums = h:sum(0, true):expand(4, 6),
    means = h:mean(1, true):expand(4, 6), most = h:amax(1, true):expand(4, 6),
  } do
    is(what, y, {4, 6}, "bfloat16")
  end
  is("h + x", h + x, {4, 6})
  is("x * h", x * h, {4, 6})
  is("h ^ x", h ^ x, {4, 6})
  is("where", F.where(m, h, x), {4, 6})
  is("h < 0.1", h:lt(0.1), {4, 6}, "bool")
  is("to", h:to("int32"), {4, 6}, "int32")
  is("to", h:to("float32"), {4, 6})
end

local function reductions(b)
  local x = b.cube                                          -- [2, 4, 6]
  for _, name in ipairs{"sum", "mean", "amax", "amin"} do
    is(name, x[name](x), {})
    is(name, x[name](x, 1), {2, 6})
    is(name, x[name](x, -1, true), {2, 4, 1})
    is(name, x[name](x, {0, -1}), {4})
    is(name, x[name](x, nil, true), {1, 1, 1})
  end
  is("var", x:var(), {})
  is("var", x:var(1), {2, 6})
  is("var", x:var(false), {})
  is("var", x:var({0, -1}, false), {4})
  is("var", x:var(-1, true, true), {2, 4, 1})
  is("var", x:var(nil, {keepdim = true}), {1, 1, 1})
  is("zeros", F.zeros{4, dtype = "bfloat16"}, {4}, "bfloat16")
  is("ones", F.ones{4, 2, dtype = "bool"}, {4, 2}, "bool")
  is("sum of ints", b.ids:sum(), {}, "int32")
  is("sum of bools", b.mask:sum(0), {6}, "int32")
  is("max", x:max(), {})
  is("min", x:min(), {})
  local values, indices = x:max(1)
  is("max(1)", values, {2, 6})
  is("max(1)", indices, {2, 6}, "int32")
  values, indices = x:min(-1, true)
  is("min(-1)", values, {2, 4, 1})
  is("min(-1)", indices, {2, 4, 1}, "int32")
  is("max(x, y)", x:max(x), {2, 4, 6})
  is("argmax", x:argmax(), {}, "int32")
  is("argmax(0)", x:argmax(0), {4, 6}, "int32")
  is("argmin(2)", x:argmin(2, true), {2, 4, 1}, "int32")
  for _, p in ipairs{2, 1, 3, 0, math.huge, -math.huge} do
    is("norm", x:norm(p), {})
    is("norm", x:norm(p, -1, true), {2, 4, 1})
  end
  is("norm", x:norm(), {})
  is("softmax", x:softmax(-1), {2, 4, 6})
  is("log_softmax", x:log_softmax(1), {2, 4, 6})
  is("logsumexp", x:logsumexp(1), {2, 6})
  is("logsumexp", x:logsumexp(1, true), {2, 1, 6})
  is("cumsum", x:cumsum(1), {2, 4, 6})
end

local function losses(b)
  local logits, classes = b.cube, b.classes                 -- [2, 4, 6], int32 [2, 4]
  is("cross_entropy", F.cross_entropy(logits, classes), {})
  is("cross_entropy", F.cross_entropy(logits, classes, {reduction = "none"}), {2, 4})
  is("cross_entropy", F.cross_entropy(logits, classes, {ignore_index = -100}), {})
  is("cross_entropy", F.cross_entropy(b.x, classes:select(0, 0), {reduction = "sum"}), {})
  is("nll_loss", F.nll_loss(logits:log_softmax(-1), classes), {})
  is("nll_loss", F.nll_loss(logits, classes, {reduction = "none", ignore_index = 2}), {2, 4})
  is("mse_loss", F.mse_loss(b.x, b.x), {})
  is("mse_loss", b.x:mse_loss(b.x, {reduction = "none"}), {4, 6})
  is("layer_norm", F.layer_norm(logits, {6}, b.row, b.row), {2, 4, 6})
  is("layer_norm", F.layer_norm(logits, {4, 6}), {2, 4, 6})
  is("rms_norm", F.rms_norm(logits, b.row), {2, 4, 6})
  is("rms_norm", F.rms_norm(logits, {6}, b.row, 1e-5), {2, 4, 6})
  is("rms_norm", F.rms_norm(logits, {4, 6}), {2, 4, 6})
end

local function views(b)
  local x = b.cube                                          -- [2, 4, 6]
  is("view", x:view(8, 6), {8, 6})
  is("view", x:view{2, -1}, {2, 24})
  is("view", x:view(-1), {48})
  is("reshape", x:reshape(3, 16), {3, 16})
  is("reshape", x:reshape(1, 2, 1, 4, 6, 1), {1, 2, 1, 4, 6, 1})
  is("view", x:view(16, 3), {16, 3})
  is("view", x:sum():view(1, 1), {1, 1})
  is("view", x:view(48):narrow(0, 0, 1):view{}, {})
  is("flatten", x:flatten(), {48})
  is("flatten", x:flatten(1), {2, 24})
  is("flatten", x:flatten(0, 1), {8, 6})
  is("unflatten", x:unflatten(-1, 2, 3), {2, 4, 2, 3})
  is("unflatten", x:unflatten(1, {-1, 2}), {2, 2, 2, 6})
  is("permute", x:permute(2, 0, 1), {6, 2, 4})
  is("permute", x:permute{0, -1, 1}, {2, 6, 4})
  is("transpose", x:transpose(0, -1), {6, 4, 2})
  is("t", b.x:t(), {6, 4})
  is("unsqueeze", x:unsqueeze(0), {1, 2, 4, 6})
  is("unsqueeze", x:unsqueeze(-1), {2, 4, 6, 1})
  is("unsqueeze", x:sum():unsqueeze(0), {1})
  is("squeeze", x:unsqueeze(1):squeeze(1), {2, 4, 6})
  is("squeeze", x:view(1, 2, 1, 24):squeeze(), {2, 24})
  is("squeeze", x:squeeze(1), {2, 4, 6})
  is("expand", b.column:expand(4, 6), {4, 6})
  is("expand", b.column:expand(3, -1, 6), {3, 4, 6})
  is("expand", b.row:expand{2, 4, 6}, {2, 4, 6})
  is("expand", x:sum():expand(2, 3), {2, 3})
  local a, c, d = x:split({1, 2, 1}, 1)
  is("split", a, {2, 1, 6})
  is("split", c, {2, 2, 6})
  is("split", d, {2, 1, 6})
  local parts = {x:split(4, -1)}
  is("split", parts[2], {2, 4, 2})
  parts = {x:chunk(4, 2)}                                   -- as torch.chunk: three of 2
  if #parts ~= 3 then error("chunk: " .. #parts) end
  is("chunk", parts[3], {2, 4, 2})
  is("narrow", x:narrow(1, 1, 2), {2, 2, 6})
  is("narrow", x:narrow(1, -1, 1), {2, 1, 6})
  is("slice", x:slice(-1, 1, -1), {2, 4, 4})
  is("slice", x:slice(-1, nil, nil, 4), {2, 4, 2})
  is("slice", x:slice(2, 1, 100, 2), {2, 4, 3})
  is("select", x:select(1, -1), {2, 6})
  is("cat", F.cat({x, x, x}, 1), {2, 12, 6})
  local many = {}
  for i = 1, 100 do many[i] = b.row end
  is("cat", F.cat(many), {600})
  is("stack", F.stack(many, 1), {6, 100})
  is("stack", F.stack({x, x}, -1), {2, 4, 6, 2})
  is("pad", x:pad({1, 2}), {2, 4, 9})
  is("pad", x:pad({1, 2, 0, 3}, 1.5), {2, 7, 9})
  is("pad", x:pad({[0] = {1, 0}, [-1] = {-1, -2}}), {3, 4, 3})
  is("tril", x:tril(), {2, 4, 6})
  is("triu", x:triu(-1), {2, 4, 6})
end

local function indices(b)
  local x, i = b.x, b.ids                                   -- [4, 6], int32 [4, 6]
  is("gather", x:gather(1, i), {4, 6})
  is("gather", x:gather(1, i:narrow(0, 0, 2):narrow(1, 0, 3)), {2, 3})
  is("gather", x:gather(0, F.cat({i, i})), {8, 6})
  is("scatter", x:scatter(1, i, x), {4, 6})
  is("scatter", x:scatter(0, i, 1.0), {4, 6})
  is("scatter", x:scatter(1, i:narrow(0, 0, 2), x), {4, 6})
  is("scatter_add", x:scatter_add(1, i:narrow(0, 1, 3), x), {4, 6})
  local ids = i:select(0, 0)                                -- [6]
  is("index_select", x:index_select(0, ids), {6, 6})
  is("index_select", b.cube:index_select(-1, ids:narrow(0, 0, 2)), {2, 4, 2})
  is("index_add", x:index_add(0, ids, b.row:expand(6, 6)), {4, 6})
  is("embedding", F.embedding(i, x), {4, 6, 6})
  is("embedding", i:to("int64"):embedding(x), {4, 6, 6})
  -- What is declared of an input reaches further than these rows; a condition may keep it off.
  is("embedding", F.embedding(F.where(i:lt(2), i, 0), x:narrow(0, 0, 2)), {4, 6, 6})
  is("embedding", F.embedding(i:minimum(1), x:narrow(0, 0, 2)), {4, 6, 6})
  is("embedding", F.embedding(i - i, x:narrow(0, 0, 1)), {4, 6, 6})
  is("embedding", F.embedding(F.arange(60):narrow(0, 0, 4), x), {4, 6})
  is("one_hot", F.one_hot(i:gt(2):to("int32"), 2), {4, 6, 2}, "int32")
  is("ignored", F.nll_loss(x:narrow(1, 0, 3), i:select(1, 0) - 1, {ignore_index = -1}), {})
  local values, order = x:topk(2)
  is("topk", values, {4, 2})
  is("topk", order, {4, 2}, "int32")
  values, order = x:sort(0, true)
  is("sort", values, {4, 6})
  is("sort", order, {4, 6}, "int32")
  is("argsort", x:argsort(), {4, 6}, "int32")
  is("one_hot", ids:one_hot(7), {6, 7}, "int32")
  is("arange", F.arange(5), {5}, "int32")
  is("arange", F.arange(2, 9, 3), {3}, "int32")
  is("arange", F.arange(1, 0, -0.25), {4})
  is("zeros", F.zeros{2, 3}, {2, 3})
  is("ones", F.ones(2, 3), {2, 3})
  is("full", F.full({2}, 7), {2}, "int32")
  is("full", F.full({}, 0.5), {})
  is("full", F.full({2}, 1, "bool"), {2}, "bool")
  is("zeros", zeros{2, 3}, {2, 3})
end

local function products(b)
  local x, cube = b.x, b.cube                               -- [4, 6], [2, 4, 6]
  is("matmul", x:matmul(x:t()), {4, 4})
  is("matmul", cube:matmul(x:t()), {2, 4, 4})
  is("matmul", x:matmul(cube:transpose(1, 2)), {2, 4, 4})
  is("matmul", F.matmul(cube, cube:transpose(1, 2)), {2, 4, 4})
  is("matmul", F.matmul(cube:unsqueeze(1), cube:transpose(1, 2)), {2, 2, 4, 4})
  is("matmul", F.matmul(cube:unsqueeze(1), cube:transpose(1, 2):unsqueeze(0)), {2, 2, 4, 4})
  is("matmul", x:matmul(b.row), {4})
  is("matmul", b.row:matmul(x:t()), {4})
  is("matmul", b.row:matmul(b.row), {})
  is("matmul", cube:matmul(b.row), {2, 4})
  is("matmul", b.row:matmul(cube:transpose(1, 2)), {2, 4})
  is("linear", F.linear(cube, x, b.column:flatten()), {2, 4, 4})
  is("einsum", F.einsum("bik, jk -> bij", cube, x), {2, 4, 4})
  is("einsum", F.einsum("bik,jk->jib", cube, x), {4, 4, 2})
  is("einsum", F.einsum("bik,jl->bij", cube, x), {2, 4, 4})
  is("einsum", F.einsum("i,j->ij", b.row, b.row), {6, 6})
  is("einsum", F.einsum("ij->j", x), {6})
  is("einsum", F.einsum("ij->ji", x), {6, 4})
  is("einsum", F.einsum("ij,kl->lk", x, x), {6, 4})
  is("einsum", F.einsum("ij,ij->", x, x), {})
end

local function attention(b)
  local q = b.q                                             -- [2, 4, 6, 8]
  local k, v = q:narrow(1, 0, 2):narrow(2, 0, 5), q:narrow(1, 0, 2):narrow(2, 1, 5)
  local attend = F.scaled_dot_product_attention
  is("attention", attend(q, q, q), {2, 4, 6, 8})
  is("attention", attend(q, k, v:narrow(3, 0, 3), {causal = true}), {2, 4, 6, 3})
  is("attention", attend(q, q, q, {mask = F.ones(6, 6):tril():to("bool")}), {2, 4, 6, 8})
  is("attention", attend(q, k, v, {mask = F.zeros(6, 5), scale = 0.5}), {2, 4, 6, 8})
  is("attention", attend(q, k, v, {mask = F.zeros(2, 4, 6, 5)}), {2, 4, 6, 8})
  is("attention", attend(q, k, v, {mask = F.ones(2, 1, 1, 5):gt(0)}), {2, 4, 6, 8})
  local cos, sin = F.rotary_tables(6, 8, 500000)
  is("rotary_tables", cos, {6, 4})
  is("rotary_tables", sin, {6, 4})
  is("rotary", q:rotary(cos, sin), {2, 4, 6, 8})
  is("rotary", F.rotary(q, cos, sin, {pairs = true}), {2, 4, 6, 8})
end

local function images(b)
  local x = b.images                                        -- [2, 4, 9, 8]
  is("conv2d", x:conv2d(F.ones(6, 4, 3, 3)), {2, 6, 7, 6})
  is("conv2d", x:conv2d(F.ones(6, 4, 3, 2), F.ones(6), {stride = {2, 1}, padding = {1, 0}}), {2, 6, 5, 7})
  is("conv2d", x:conv2d(F.ones(6, 2, 3, 3), nil, {groups = 2, dilation = 2}), {2, 6, 5, 4})
  is("max_pool2d", x:max_pool2d(2), {2, 4, 4, 4})
  is("max_pool2d", F.max_pool2d(x, {3, 2}, {stride = 1, padding = 1}), {2, 4, 9, 9})
end

local Model = nn.module("Model", function(self)
  self.embedding = nn.Embedding(6, 6)
  self.norm = nn.LayerNorm(6)
  self.norm2 = nn.LayerNorm({4, 6}, {eps = 1e-6, elementwise_affine = false})
  self.rms = nn.RMSNorm(6, {eps = 1e-6})
  self.drop = nn.Dropout(0.2)
  self.gelu, self.soft = nn.GELU("tanh"), nn.Softmax(-1)
  self.conv = nn.Conv2d(4, 6, {3, 2}, {stride = 2, padding = 1, groups = 2, bias = false})
  self.pool, self.flat = nn.MaxPool2d(2, {stride = 1}), nn.Flatten()

  function self:forward(b)
    is("Embedding", self.embedding(b.classes), {2, 4, 6})
    is("LayerNorm", self.norm(b.cube), {2, 4, 6})
    is("LayerNorm", self.norm2(b.cube), {2, 4, 6})
    is("RMSNorm", self.rms(b.cube), {2, 4, 6})
    is("Dropout", self.drop(b.x), {4, 6})
    is("GELU", self.gelu(b.x), {4, 6})
    is("Softmax", self.soft(b.x), {4, 6})
    is("Conv2d", self.conv(b.images), {2, 6, 5, 5})
    is("MaxPool2d", self.pool(b.images), {2, 4, 8, 7})
    is("Flatten", self.flat(b.cube), {2, 24})
    return self.embedding.weight:sum()
  end
end)

local families = {pointwise, halves, reductions, losses, views, indices, products, attention, images}

return train{
  model = Model(),
  batch = {
    x = randn{4, 6}, row = randn{6}, column = randn{4, 1}, cube = randn{2, 4, 6},
    ids = randint(4){4, 6}, classes = randint(6){2, 4}, mask = randint(2){4, 6, dtype = "bool"},
    q = randn{2, 4, 6, 8}, images = randn{2, 4, 9, 8},
  },
  forward = function(model, batch)
    for _, family in ipairs(families) do family(batch) end
    return model(batch)
  end,
  loss = function(output) return output end,
  optimizer = SGD{}, steps = 1,
}
