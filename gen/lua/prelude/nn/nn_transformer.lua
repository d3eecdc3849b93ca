-- nn_transformer.lua: attention and a layer of an encoder with the parameters, arguments and names of torch.nn.
local core, base, plan = ...
local fail = base.fail
local nn, raw, own_class = plan.nn, base.raw, base.own_class

local LARGEST = 1 << 40

-- A mask that is added to the scores, of one that is true where a key is not seen, or is added itself.
local function added(mask, what)
  base.expect(mask, "tensor", what)
  if core.type(mask) ~= "bool" then return base.need_floating(mask) end
  return raw.where(mask, -math.huge, 0.0)
end

-- Both masks together: [n, heads or 1, queries or 1, keys]; nil where there is none.
local function mask_of(padding, attn_mask, n, heads)
  local mask
  if padding ~= nil then
    mask = added(padding, "MultiheadAttention's key_padding_mask")
    mask = raw.unsqueeze(raw.unsqueeze(#core.shape(mask) == 1 and raw.unsqueeze(mask, 0) or mask, 1), 1)
  end
  if attn_mask ~= nil then
    local other = added(attn_mask, "MultiheadAttention's attn_mask")
    if #core.shape(other) == 3 then other = raw.unflatten(other, 0, n, heads) end
    mask = mask and raw.add(mask, other) or other
  end
  return mask
end

-- The projections of query, key and value.
local function projected(self, query, key, value)
  local weight, bias = self.in_proj_weight, self.in_proj_bias
  if weight and rawequal(query, key) and rawequal(key, value) then return raw.chunk(raw.linear(query, weight, bias), 3, -1) end
  local size, results = self.embed_dim, {}
  for i, x in ipairs{query, key, value} do
    local w = weight and base.narrow(weight, 0, (i - 1) * size, size) or self[({"q", "k", "v"})[i] .. "_proj_weight"]
    results[i] = raw.linear(x, w, bias and base.narrow(bias, 0, (i - 1) * size, size))
  end
  return table.unpack(results)
end

--- # Modules
--- nn.MultiheadAttention(embed_dim, num_heads, dropout = 0, bias = true, kdim?, vdim?, batch_first = false, dtype?):
--- `attention(query, key, value, key_padding_mask?, need_weights = true, attn_mask?, average_attn_weights = true, is_causal =
--- false)` gives the output, and the weights before dropout; masks are true where a key is not seen, or are added.
nn.MultiheadAttention = own_class("MultiheadAttention", {"embed_dim", "num_heads", "in_proj_weight", "q_proj_weight",
    "k_proj_weight", "v_proj_weight", "in_proj_bias", "out_proj"},
  function(embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device, dtype)
    local who = "MultiheadAttention"
    base.only_float32(dtype, who)
    local size = base.integer(embed_dim, who .. "'s embed_dim", 1, LARGEST)
    local heads = base.integer(num_heads, who .. "'s num_heads", 1, LARGEST)
    if size % heads ~= 0 then fail("%s: embed_dim %d cannot be divided among %d heads", who, size, heads) end
    local keys = kdim == nil and size or base.integer(kdim, who .. "'s kdim", 1, LARGEST)
    local values = vdim == nil and size or base.integer(vdim, who .. "'s vdim", 1, LARGEST)
    local self = {embed_dim = size, num_heads = heads}
    local function matrix(rows, columns) -- Xavier's uniform
      local bound = math.sqrt(6 / (rows + columns))
      return core.parameter(who, {rows, columns}, "uniform", -bound, bound)
    end
    if keys == size and values == size then
      self.in_proj_weight = matrix(3 * size, size)
    else
      self.q_proj_weight, self.k_proj_weight, self.v_proj_weight = matrix(size, size), matrix(size, keys), matrix(size, values)
    end
    local has_bias = base.checked_flag(bias, who .. "'s bias")
    self.out_proj = nn.Linear(size, size, has_bias)
    if has_bias then
      self.in_proj_bias = base.filled_parameter(who, {3 * size}, 0.0)
      self.out_proj.bias = base.filled_parameter("Linear", {size}, 0.0)
    end
    return self, {heads = heads, dropout = base.number(dropout == nil and 0 or dropout, who .. "'s dropout", 0, 1.0000001),
      batch_first = batch_first ~= nil and base.checked_flag(batch_first, who .. "'s batch_first")}
  end,
  function(self, how, query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal)
    if base.kind(key_padding_mask) == "table" then
      local options = base.options(key_padding_mask, "MultiheadAttention's forward",
        {"key_padding_mask", "need_weights", "attn_mask", "average_attn_weights", "is_causal"})
      key_padding_mask, need_weights, attn_mask = options.key_padding_mask, options.need_weights, options.attn_mask
      average_attn_weights, is_causal = options.average_attn_weights, options.is_causal
    end
    for _, x in ipairs{query or false, key or false, value or false} do base.check_input(x or nil, "MultiheadAttention") end
    local dims = #core.shape(query)
    if dims ~= 2 and dims ~= 3 then
      fail("MultiheadAttention takes [%s, size], not the shape %s", how.batch_first and "n, tokens" or "tokens, n",
        base.shape_text(core.shape(query)))
    end
    local q, k, v = projected(self, query, key, value)
    -- [n, heads, tokens, size of a head]
    local function heads(x)
      if dims == 2 then x = raw.unsqueeze(x, 0) elseif not how.batch_first then x = raw.transpose(x, 0, 1) end
      return raw.transpose(raw.unflatten(x, -1, how.heads, -1), 1, 2)
    end
    q, k, v = heads(q), heads(k), heads(v)
    local mask = mask_of(key_padding_mask, attn_mask, core.shape(q)[1], how.heads)
    local causal = is_causal and attn_mask == nil or nil
    if causal and mask then
      local m, n = core.shape(q)[3], core.shape(k)[3]
      mask, causal = raw.add(mask, raw.where(raw.gt(base.index_row(n), raw.unsqueeze(base.index_row(m), 1)), -math.huge, 0.0)), nil
    end
    local y = raw.scaled_dot_product_attention(q, k, v, mask, base.training and how.dropout or 0, causal)
    y = raw.flatten(raw.transpose(y, 1, 2), 2)
    if dims == 2 then y = raw.squeeze(y, 0) elseif not how.batch_first then y = raw.transpose(y, 0, 1) end
    y = self.out_proj(y)
    if need_weights == false then return y end
    local scores = raw.mul(raw.matmul(q, raw.transpose(k, 2, 3)), 1 / math.sqrt(self.embed_dim // how.heads))
    if mask then scores = raw.add(scores, mask) end
    if causal then
      local m, n = core.shape(q)[3], core.shape(k)[3]
      scores = raw.where(raw.gt(base.index_row(n), raw.unsqueeze(base.index_row(m), 1)), -math.huge, scores)
    end
    local weights = raw.softmax(scores, -1)
    if average_attn_weights ~= false then weights = raw.mean(weights, 1) end
    return y, dims == 2 and raw.squeeze(weights, 0) or weights
  end)
base.MultiheadAttention = nn.MultiheadAttention

local ACTIVATIONS = {relu = "relu", gelu = "gelu"}

--- nn.TransformerEncoderLayer(d_model, nhead, dim_feedforward = 2048, dropout = 0.1, activation = "relu", layer_norm_eps =
--- 1e-5, batch_first = false, norm_first = false, bias = true, dtype?): attention and a feed-forward network, with norms and
--- sums: `layer(src, src_mask?, src_key_padding_mask?, is_causal = false)`. `activation` may be a function.
nn.TransformerEncoderLayer = own_class("TransformerEncoderLayer", {"self_attn", "linear1", "dropout", "linear2", "norm1",
    "norm2", "dropout1", "dropout2"},
  function(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype)
    local who = "TransformerEncoderLayer"
    base.only_float32(dtype, who)
    local wide = dim_feedforward == nil and 2048 or base.integer(dim_feedforward, who .. "'s dim_feedforward", 1, LARGEST)
    local p = dropout == nil and 0.1 or dropout
    local act = activation == nil and "relu" or activation
    if type(act) ~= "function" and base.kind(act) ~= "module" and not ACTIVATIONS[act] then
      fail('%s\'s activation is "relu", "gelu" or a function, not %s', who, base.a(act))
    end
    local has_bias, norm = base.checked_flag(bias, who .. "'s bias"), {eps = layer_norm_eps, bias = bias}
    return {
      self_attn = nn.MultiheadAttention(d_model, nhead, {dropout = p, bias = has_bias, batch_first = batch_first}),
      linear1 = nn.Linear(d_model, wide, has_bias), dropout = nn.Dropout(p), linear2 = nn.Linear(wide, d_model, has_bias),
      norm1 = nn.LayerNorm(d_model, norm), norm2 = nn.LayerNorm(d_model, norm),
      dropout1 = nn.Dropout(p), dropout2 = nn.Dropout(p),
    }, {act = ACTIVATIONS[act] and raw[ACTIVATIONS[act]] or act,
      norm_first = norm_first ~= nil and base.checked_flag(norm_first, who .. "'s norm_first")}
  end,
  function(self, how, src, src_mask, src_key_padding_mask, is_causal)
    if base.kind(src_mask) == "table" then
      local options = base.options(src_mask, "TransformerEncoderLayer's forward", {"src_mask", "src_key_padding_mask", "is_causal"})
      src_mask, src_key_padding_mask, is_causal = options.src_mask, options.src_key_padding_mask, options.is_causal
    end
    local x = src
    local function attention(y)
      return self.dropout1((self.self_attn(y, y, y, src_key_padding_mask, false, src_mask, nil, is_causal)))
    end
    local function network(y) return self.dropout2(self.linear2(self.dropout(how.act(self.linear1(y))))) end
    if how.norm_first then
      x = raw.add(x, attention(self.norm1(x)))
      return raw.add(x, network(self.norm2(x)))
    end
    x = self.norm1(raw.add(x, attention(x)))
    return self.norm2(raw.add(x, network(x)))
  end)
