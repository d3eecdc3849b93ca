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

-- What layers of encoders and decoders have: the network behind the attention, and how it is computed.
local function layer_of(who, again, norms, d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
    norm_first, bias, dtype)
  base.only_float32(dtype, who)
  local wide = dim_feedforward == nil and 2048 or base.integer(dim_feedforward, who .. "'s dim_feedforward", 1, LARGEST)
  local p = dropout == nil and 0.1 or dropout
  local act = activation == nil and "relu" or activation
  if type(act) ~= "function" and base.kind(act) ~= "module" and not ACTIVATIONS[act] then
    fail('%s\'s activation is "relu", "gelu" or a function, not %s', who, base.a(act))
  end
  local has_bias, norm = base.checked_flag(bias, who .. "'s bias"), {eps = layer_norm_eps, bias = bias}
  local function attention() return nn.MultiheadAttention(d_model, nhead, {dropout = p, bias = has_bias, batch_first = batch_first}) end
  local self = {self_attn = attention(), linear1 = nn.Linear(d_model, wide, has_bias), dropout = nn.Dropout(p),
    linear2 = nn.Linear(wide, d_model, has_bias), multihead_attn = norms == 3 and attention() or nil}
  for i = 1, norms do self["norm" .. i], self["dropout" .. i] = nn.LayerNorm(d_model, norm), nn.Dropout(p) end
  return self, {act = ACTIVATIONS[act] and raw[ACTIVATIONS[act]] or act, again = again,
    norm_first = norm_first ~= nil and base.checked_flag(norm_first, who .. "'s norm_first")}
end

-- x, with what each part makes of it added: normed before the part, or behind the sum.
local function through_parts(self, how, x, parts)
  for i, part in ipairs(parts) do
    local norm, dropout = self["norm" .. i], self["dropout" .. i]
    if how.norm_first then
      x = raw.add(x, dropout(part(norm(x))))
    else
      x = norm(raw.add(x, dropout(part(x))))
    end
  end
  return x
end
local function network(self, how)
  return function(x) return self.linear2(self.dropout(how.act(self.linear1(x)))) end
end

-- The arguments of a forward by name, where the first one is a table of them.
local function by_name(who, names, first, ...)
  if base.kind(first) ~= "table" then return first, ... end
  local options, list = base.options(first, who .. "'s forward", names), {}
  for i, name in ipairs(names) do list[i] = options[name] end
  return table.unpack(list, 1, #names)
end

--- nn.TransformerEncoderLayer(d_model, nhead, dim_feedforward = 2048, dropout = 0.1, activation = "relu", layer_norm_eps =
--- 1e-5, batch_first = false, norm_first = false, bias = true, dtype?): attention and a feed-forward network, with norms and
--- sums: `layer(src, src_mask?, src_key_padding_mask?, is_causal = false)`. `activation` may be a function.
nn.TransformerEncoderLayer = own_class("TransformerEncoderLayer", {"self_attn", "linear1", "dropout", "linear2", "norm1",
    "norm2", "dropout1", "dropout2"},
  function(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype)
    local function again()
      return nn.TransformerEncoderLayer(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first,
        bias)
    end
    return layer_of("TransformerEncoderLayer", again, 2, d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
      batch_first, norm_first, bias, dtype)
  end,
  function(self, how, src, src_mask, src_key_padding_mask, is_causal)
    src_mask, src_key_padding_mask, is_causal = by_name("TransformerEncoderLayer", {"src_mask", "src_key_padding_mask", "is_causal"},
      src_mask, src_key_padding_mask, is_causal)
    return through_parts(self, how, src, {
      function(x) return (self.self_attn(x, x, x, src_key_padding_mask, false, src_mask, nil, is_causal)) end,
      network(self, how)})
  end)

--- nn.TransformerDecoderLayer(d_model, nhead, dim_feedforward = 2048, dropout = 0.1, activation = "relu", layer_norm_eps =
--- 1e-5, batch_first = false, norm_first = false, bias = true, dtype?): likewise, with attention to an encoder's output:
--- `layer(tgt, memory, tgt_mask?, memory_mask?, tgt_key_padding_mask?, memory_key_padding_mask?, tgt_is_causal = false,
--- memory_is_causal = false)`.
nn.TransformerDecoderLayer = own_class("TransformerDecoderLayer", {"self_attn", "multihead_attn", "linear1", "dropout", "linear2",
    "norm1", "norm2", "norm3", "dropout1", "dropout2", "dropout3"},
  function(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype)
    local function again()
      return nn.TransformerDecoderLayer(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first,
        bias)
    end
    return layer_of("TransformerDecoderLayer", again, 3, d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
      batch_first, norm_first, bias, dtype)
  end,
  function(self, how, tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal,
      memory_is_causal)
    tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal, memory_is_causal = by_name(
      "TransformerDecoderLayer", {"tgt_mask", "memory_mask", "tgt_key_padding_mask", "memory_key_padding_mask", "tgt_is_causal",
      "memory_is_causal"}, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal, memory_is_causal)
    return through_parts(self, how, tgt, {
      function(x) return (self.self_attn(x, x, x, tgt_key_padding_mask, false, tgt_mask, nil, tgt_is_causal)) end,
      function(x)
        return (self.multihead_attn(x, memory, memory, memory_key_padding_mask, false, memory_mask, nil, memory_is_causal))
      end,
      network(self, how)})
  end)

-- Layers like the one that is given, and the norm behind them. PyTorch copies the layer with its values; here each of them
-- begins with its own, as if it were made anew.
local function stack_of(who, layer, num_layers, norm)
  local state = base.kind(layer) == "module" and base.own_state(layer)
  if not state or not state.again then fail("%s copies a layer of nn, not %s", who, base.a(layer)) end
  local n, layers = base.integer(num_layers, who .. "'s num_layers", 1, 10000), {}
  for i = 1, n do layers[i] = state.again() end
  if norm ~= nil then base.expect(norm, "module", who .. "'s norm") end
  return {layers = base.ModuleList(layers), norm = norm}, {}
end

--- nn.TransformerEncoder(encoder_layer, num_layers, norm?, enable_nested_tensor?, mask_check?): layers like the given one, each
--- with initial values of its own, and a norm: `encoder(src, mask?, src_key_padding_mask?, is_causal?)`. The last two change
--- nothing.
nn.TransformerEncoder = own_class("TransformerEncoder", {"layers", "norm"},
  function(encoder_layer, num_layers, norm, enable_nested_tensor, mask_check)
    return stack_of("TransformerEncoder", encoder_layer, num_layers, norm)
  end,
  function(self, _, src, mask, src_key_padding_mask, is_causal)
    mask, src_key_padding_mask, is_causal = by_name("TransformerEncoder", {"mask", "src_key_padding_mask", "is_causal"}, mask,
      src_key_padding_mask, is_causal)
    local x = src
    for _, layer in ipairs(self.layers) do x = layer(x, mask, src_key_padding_mask, is_causal) end
    return self.norm and self.norm(x) or x
  end)

--- nn.TransformerDecoder(decoder_layer, num_layers, norm?): likewise: `decoder(tgt, memory, tgt_mask?, memory_mask?,
--- tgt_key_padding_mask?, memory_key_padding_mask?, tgt_is_causal?, memory_is_causal = false)`.
nn.TransformerDecoder = own_class("TransformerDecoder", {"layers", "norm"},
  function(decoder_layer, num_layers, norm) return stack_of("TransformerDecoder", decoder_layer, num_layers, norm) end,
  function(self, _, tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal,
      memory_is_causal)
    local x = tgt
    for _, layer in ipairs(self.layers) do
      x = layer(x, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal, memory_is_causal)
    end
    return self.norm and self.norm(x) or x
  end)

--- nn.Transformer(d_model = 512, nhead = 8, num_encoder_layers = 6, num_decoder_layers = 6, dim_feedforward = 2048, dropout =
--- 0.1, activation = "relu", custom_encoder?, custom_decoder?, layer_norm_eps = 1e-5, batch_first = false, norm_first = false,
--- bias = true, dtype?): an encoder and a decoder: `transformer(src, tgt, src_mask?, tgt_mask?, memory_mask?,
--- src_key_padding_mask?, tgt_key_padding_mask?, memory_key_padding_mask?, src_is_causal?, tgt_is_causal?, memory_is_causal =
--- false)`.
nn.Transformer = own_class("Transformer", {"encoder", "decoder"},
  function(d_model, nhead, num_encoder_layers, num_decoder_layers, dim_feedforward, dropout, activation, custom_encoder,
      custom_decoder, layer_norm_eps, batch_first, norm_first, bias, device, dtype)
    base.only_float32(dtype, "Transformer")
    local size, heads = d_model == nil and 512 or d_model, nhead == nil and 8 or nhead
    local function part(custom, stack, layer, count)
      if custom ~= nil then return custom end
      return nn[stack](nn[layer](size, heads, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias),
        count == nil and 6 or count, nn.LayerNorm(size, {eps = layer_norm_eps, bias = bias}))
    end
    return {encoder = part(custom_encoder, "TransformerEncoder", "TransformerEncoderLayer", num_encoder_layers),
      decoder = part(custom_decoder, "TransformerDecoder", "TransformerDecoderLayer", num_decoder_layers)}, {}
  end,
  function(self, _, src, tgt, src_mask, tgt_mask, memory_mask, src_key_padding_mask, tgt_key_padding_mask,
      memory_key_padding_mask, src_is_causal, tgt_is_causal, memory_is_causal)
    src_mask, tgt_mask, memory_mask, src_key_padding_mask, tgt_key_padding_mask, memory_key_padding_mask, src_is_causal,
      tgt_is_causal, memory_is_causal = by_name("Transformer", {"src_mask", "tgt_mask", "memory_mask", "src_key_padding_mask",
      "tgt_key_padding_mask", "memory_key_padding_mask", "src_is_causal", "tgt_is_causal", "memory_is_causal"}, src_mask, tgt_mask,
      memory_mask, src_key_padding_mask, tgt_key_padding_mask, memory_key_padding_mask, src_is_causal, tgt_is_causal,
      memory_is_causal)
    local memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
    return self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal,
      memory_is_causal)
  end)
