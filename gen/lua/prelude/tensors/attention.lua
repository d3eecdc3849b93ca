-- attention.lua: attention, and the rotary embedding of its queries and keys.
local core, base = ...
local append, raw, define, method = core.append, base.raw, base.define, base.method
local misfit, shape_text, view = base.misfit, base.shape_text, base.view

-- -------------------------------------------------------------------------------------- attention

-- Heads [b, h, ...] in groups [b, groups, h / groups, ...].
local function grouped(x, groups)
  local shape = core.shape(x)
  local heads = shape[2] // groups
  shape[2] = groups
  table.insert(shape, 3, heads)
  return view(x, shape)
end

-- A mask that broadcasts to [b, heads, q, k], for heads in groups.
local function grouped_mask(mask, groups)
  local shape = core.shape(mask)
  if #shape < 3 then return mask end
  local at = #shape - 2
  local heads = shape[at]
  shape[at] = heads == 1 and 1 or groups
  table.insert(shape, at + 1, heads == 1 and 1 or heads // groups)
  return view(mask, shape)
end

local LEAST = -3.4028234663852886e38 -- of float32: the score of a masked key

local function both(a, b)
  if a == nil or b == nil then return a == nil and b or a end
  return raw.logical_and(a, b)
end

-- The keys that a query sees by position only: [q, k], or nil: all.
local function seen_by_place(q, k, how)
  if not how.causal and not how.window then return nil end
  local places, keys = base.index_row(core.shape(q)[3]), base.index_row(core.shape(k)[3])
  local ahead = raw.sub(keys, view(places, {core.shape(q)[3], 1}))
  local sees = how.causal and raw.le(ahead, 0) or nil
  if not how.window then return sees end
  if not how.causal then sees = raw.lt(ahead, how.window) end
  return both(sees, raw.gt(ahead, -how.window))
end

-- The keys in a query's document: [b, 1, q, k], or with a further dimension for groups; or nil: all.
local function seen_in_documents(documents, in_groups)
  if not documents then return nil end
  local s, t = core.shape(documents[1]), core.shape(documents[2])
  local of_queries, of_keys = {s[1], 1, s[2], 1}, {t[1], 1, 1, t[2]}
  if in_groups then
    table.insert(of_queries, 2, 1)
    table.insert(of_keys, 2, 1)
  end
  return raw.eq(view(documents[1], of_queries), view(documents[2], of_keys))
end

-- Attention with its scores in memory: for dropout, which the kernel of `attention` does not have.
-- how: {mask =, scale =, causal =, window =, softcap =, dropout =, documents =}.
local function attention_of_scores(q, k, v, how)
  local heads, groups, shape, mask = core.shape(q)[2], core.shape(k)[2], core.shape(q), how.mask
  local in_groups = groups < heads
  local sees = both(seen_by_place(q, k, how), seen_in_documents(how.documents, groups < heads))
  if in_groups then q, mask = grouped(q, groups), mask and grouped_mask(mask, groups) end
  local r = in_groups and "r" or ""
  local scores = base.wide(base.product(q, k, string.format("bg%sqd,bgkd->bg%sqk", r, r)))
  scores = base.scaled(scores, how.scale)
  if how.softcap then scores = base.scaled(raw.tanh(base.scaled(scores, 1 / how.softcap)), how.softcap) end
  if mask ~= nil and core.type(mask) ~= "bool" then
    sees = both(raw.logical_not(raw.lt(mask, LEAST)), sees)
    scores = raw.add(scores, mask)
  elseif mask ~= nil then
    sees = both(mask, sees)
  end
  if sees ~= nil then scores = raw.where(sees, scores, LEAST) end
  local shares = raw.softmax(scores, -1)
  -- A query that sees no key gets zero weights, as in PyTorch.
  if sees ~= nil then shares = raw.where(sees, shares, 0.0) end
  shares = base.narrowed(raw.dropout(shares, how.dropout), v)
  local y = base.product(shares, v, string.format("bg%sqk,bgke->bg%sqe", r, r))
  shape[4] = core.shape(v)[4]
  return view(y, shape)
end

-- The shape with dimensions of size 1 before it, up to four.
local function four_dimensional(x)
  local shape = core.shape(x)
  while #shape < 4 do table.insert(shape, 1, 1) end
  return view(x, shape)
end

-- A mask of truths that hides the same keys from all queries of a sequence, as numbers of documents:
-- 1 for each query, and for the keys that are seen.
local function as_documents(mask, q)
  local m, s = core.shape(mask), core.shape(q)
  if core.type(mask) ~= "bool" or #m ~= 4 or m[1] ~= s[1] or m[2] ~= 1 or m[3] ~= 1 then return nil end
  local seen = raw.to(view(mask, {m[1], m[4]}), "int32")
  return raw.full({s[1], s[3]}, 1), seen
end

-- The bias of the scores for a mask of truths or of numbers: [b or 1, heads or 1, q or 1, k].
local function as_bias(mask, k)
  if core.type(mask) == "bool" then mask = raw.where(mask, 0.0, -math.huge) end
  local bias = four_dimensional(base.wide(mask))
  local shape, keys = core.shape(bias), core.shape(k)[3]
  if shape[4] == keys then return bias end
  return raw.expand(bias, {shape[1], shape[2], shape[3], keys})
end

-- Adds a tensor and its part of the rule.
local function append_to(inputs, rules, tensor, rule)
  inputs[#inputs + 1], rules[#rules + 1] = tensor, rule
end

-- "b 1 q k" of a bias's shape.
local function bias_rule(bias, q)
  local b, s, rule = core.shape(bias), core.shape(q), {"b", "(gr)", "q", "k"}
  for d = 1, 3 do
    if b[d] ~= s[d] then rule[d] = "1" end
  end
  return table.concat(rule, " ")
end

-- The bias where a query and a key are in the same document.
local function within_documents(bias, of_queries, of_keys)
  local s, t = core.shape(of_queries), core.shape(of_keys)
  local same = raw.eq(view(of_queries, {s[1], 1, s[2], 1}), view(of_keys, {t[1], 1, 1, t[2]}))
  return raw.where(same, bias, -math.huge)
end

-- Options that depend on the places of queries and keys are refused with a ring, and with another order of the sequence.
local function refuse_in_parts(cut, what)
  if cut and (cut.ring or cut.balanced) then
    misfit('%s does not go with context_parallel\'s %s: take method = "allgather" or "ulysses" without balance', what,
      cut.ring and 'method = "ring"' or "balance")
  end
end

-- softmax(scale q k^T) v by one kernel. how: {mask =, scale =, causal =, window =, softcap =,
-- documents = {of queries, of keys}, sinks =}.
local function whole_attention(q, k, v, how)
  local s = core.shape(q)
  if core.type(q) ~= core.type(k) or core.type(q) ~= core.type(v) then
    q, k, v = base.wide(q), base.wide(k), base.wide(v)
  end
  local cut = base.cut_attention(q, k, how)
  local places = cut and cut.places
  if cut then
    cut.tell_of_order(q)
    cut.tell_of_order(k)
    q, k, v = cut.heads(q, k, v)
  end
  local inputs, rules, mask = {q, k, v}, {}, how.mask
  local of_queries, of_keys
  if how.documents then of_queries, of_keys = how.documents[1], how.documents[2] end
  if cut and of_queries then
    cut.must_follow(of_queries, "its documents are")
    cut.must_follow(of_keys, "its documents are")
  elseif cut and mask ~= nil then
    cut.must_follow(mask, "its mask is")
  end
  if mask ~= nil and not of_queries then
    of_queries, of_keys = as_documents(mask, q)
    if of_queries then mask = nil end
  end
  if mask ~= nil then
    refuse_in_parts(cut, "a mask of scores")
    local bias = as_bias(mask, k)
    if of_queries then bias, of_queries = within_documents(bias, of_queries, of_keys), nil end
    append_to(inputs, rules, bias, bias_rule(bias, q))
  end
  if of_queries then
    append_to(inputs, rules, cut and cut.queries(of_queries, 1) or of_queries, "bq")
    append_to(inputs, rules, cut and cut.keys(of_keys, 1) or of_keys, "bk")
  end
  if places then
    append_to(inputs, rules, places, "q")
    append_to(inputs, rules, cut.key_places, "k")
  end
  if how.sinks ~= nil then append_to(inputs, rules, base.wide(how.sinks), "(gr)") end
  local further = table.concat(rules, ",")
  local y = append("attention", inputs, {scalar = how.scale, causal = not places and how.causal and 1 or 0,
    window = not places and how.window or 0, softcap = how.softcap or 0, biased = mask ~= nil and 1 or 0,
    documents = of_queries and 1 or 0, sinks = how.sinks ~= nil and 1 or 0,
    places = not places and 0 or how.causal and 1 or 2, reach = places and how.window or 0,
    ring = cut and cut.ring or 0, headtail = places and 1 or 0,
    equation = #rules > 0 and string.format("b(gr)q@d!,bgk!d!,bgk!e!,%s->b(gr)qe!,b(gr)q:f32", further) or nil,
    shapes = {{s[1], s[2], s[3], core.shape(v)[4]}, {s[1], s[2], s[3]}}})
  return cut and cut.back(y) or y
end

local function check_heads(q, k, v)
  local a, b, c = core.shape(q), core.shape(k), core.shape(v)
  if #a ~= 4 or #b ~= 4 or #c ~= 4 then
    misfit("it takes tensors [batch, heads, sequence, size], not the shapes %s, %s and %s",
      shape_text(a), shape_text(b), shape_text(c))
  end
  if a[1] ~= b[1] or a[1] ~= c[1] or b[2] ~= c[2] or b[3] ~= c[3] or a[4] ~= b[4] then
    misfit("queries %s, keys %s and values %s do not fit", shape_text(a), shape_text(b),
      shape_text(c))
  end
  if a[2] % b[2] ~= 0 then
    misfit("the %d heads of the queries %s are not a multiple of the %d heads of the keys %s", a[2],
      shape_text(a), b[2], shape_text(b))
  end
end

local function check_mask(q, k, mask)
  base.tensor(mask, "the mask")
  local s, t = core.shape(q), core.shape(k)
  local scores, shape = {s[1], s[2], s[3], t[3]}, core.shape(mask)
  if #shape > 4 then
    misfit("a mask of shape %s has more dimensions than the scores %s", shape_text(shape),
      shape_text(scores))
  end
  for i = 0, #shape - 1 do
    local size = shape[#shape - i]
    if size ~= 1 and size ~= scores[4 - i] then
      misfit("a mask of shape %s does not fit the scores %s", shape_text(shape), shape_text(scores))
    end
  end
  if core.type(mask) ~= "bool" and not base.is_floating(mask) then
    misfit("the mask must be bool, or float32 to be added, not %s", core.type(mask))
  end
end

local function flag(value, what)
  if value ~= nil and type(value) ~= "boolean" then
    misfit("%s must be true or false, not %s", what, base.a(value))
  end
  return value
end

-- By tensor of the documents' numbers: the most tokens of a document.
local longest_of = setmetatable({}, {__mode = "k"})

-- A document of at most so many tokens has no key further away from a query.
local function window_in_documents(window, documents)
  local pair = base.kind(documents) == "table" and documents or {documents, documents}
  local longest = documents ~= nil and pair[1] == pair[2] and longest_of[pair[1]]
  return longest and math.min(window or longest, longest) or window
end

-- The numbers of the documents of the queries and of the keys; one tensor serves both.
local function checked_documents(documents, q, k)
  if documents == nil then return nil end
  local pair = base.kind(documents) == "table" and documents or {documents, documents}
  for i, x in ipairs{q, k} do
    local d, s = pair[i], core.shape(x)
    base.tensor(d, "documents")
    local shape, kind = core.shape(d), core.type(d)
    if #shape ~= 2 or shape[1] ~= s[1] or shape[2] ~= s[3] or (kind ~= "int32" and kind ~= "int64") then
      misfit("documents are whole numbers of shape %s, one for each of the %s, not %s of shape %s",
        shape_text{s[1], s[3]}, i == 1 and "queries" or "keys", kind, shape_text(shape))
    end
  end
  return {raw.to(pair[1], "int32"), raw.to(pair[2], "int32")}
end

local function check_sinks(sinks, q)
  base.need_floating(base.tensor(sinks, "the sinks"))
  local shape, heads = core.shape(sinks), core.shape(q)[2]
  if #shape ~= 1 or shape[1] ~= heads then
    misfit("the sinks have a number for each of the %d heads, not the shape %s", heads, shape_text(shape))
  end
end

-- scaled_dot_product_attention(q, k, v, {is_causal =, attn_mask =, scale =, window =, softcap =,
-- documents =, sinks =}),
-- each of shape [batch, heads, sequence, size]; keys and values may have fewer heads, each for a
-- group of the queries' heads. attn_mask: true where a query sees a key, or what is added to the
-- scores: -inf where it sees none. A query that sees no key at all gets zeros. window: a query sees
-- the keys within that many positions, its own included; with is_causal, only the last so many.
-- softcap: scores become softcap * tanh(score / softcap). documents: whole numbers [batch, sequence],
-- or one such for the queries and one for the keys; a query sees the keys with its own number. sinks:
-- a score of each head that counts in the sum and has no value. causal and mask are other names of
-- is_causal and attn_mask.
--- # Attention
--- F.scaled_dot_product_attention(query, key, value, attn_mask?, dropout_p = 0, is_causal = false, scale?, enable_gqa
--- = false, causal?, mask?, window?, softcap?, documents?, sinks?): of `[batch, heads, sequence, size]`. Keys and
--- values may have fewer heads, each for a group of the queries' heads. `attn_mask` is true where a query sees a key,
--- or a number added to the score; a query that sees no key gets zeros. `window`: a query sees the keys within that
--- many positions, its own included. `softcap`: scores become `softcap * tanh(score / softcap)`. `documents`: whole
--- numbers `[batch, sequence]`, or one such tensor for queries and one for keys; a query sees the keys with its
--- number. `sinks`: a score of each head that counts in the sum and has no value. `causal` and `mask` are other names
--- of `is_causal` and `attn_mask`.
method("scaled_dot_product_attention", function(query, key, value, attn_mask, dropout_p, is_causal, scale,
    enable_gqa, causal, mask, window, softcap, documents, sinks)
  local q, k, v = query, key, value
  if mask ~= nil and attn_mask ~= nil then misfit("mask and attn_mask are the same") end
  if mask == nil then mask = attn_mask end
  if flag(causal, "causal") == nil then causal = flag(is_causal, "is_causal") end
  flag(enable_gqa, "enable_gqa")
  base.tensor(k, "the keys")
  base.tensor(v, "the values")
  check_heads(q, k, v)
  for _, x in ipairs{q, k, v} do base.need_floating(x) end
  base.check_types(q, "the query", k, "the key")
  base.check_types(q, "the query", v, "the value")
  if scale == nil then scale = 1 / math.sqrt(core.shape(q)[4]) end
  if type(scale) ~= "number" or scale - scale ~= 0 then
    misfit("the scale must be a number, not %s", base.a(scale))
  end
  if mask ~= nil then
    if causal then misfit("it takes a mask or causal, not both") end
    check_mask(q, k, mask)
  end
  if window ~= nil then base.whole(window, "window", 1) end
  if softcap ~= nil and not (base.number_or(softcap, 0, "softcap") > 0) then misfit("softcap must be above 0") end
  local dropout = base.number_or(dropout_p, 0, "dropout_p")
  if sinks ~= nil then
    check_sinks(sinks, q)
    if dropout ~= 0 then misfit("sinks do not go with dropout_p") end
  end
  window = window_in_documents(window, documents)
  local how = {mask = mask, scale = scale, causal = causal, window = window, softcap = softcap, sinks = sinks,
    dropout = dropout, documents = checked_documents(documents, q, k)}
  if dropout == 0 then return whole_attention(q, k, v, how) end
  local cut = base.cut_attention(q, k, how)
  if not cut then return attention_of_scores(q, k, v, how) end
  refuse_in_parts(cut, "dropout_p")
  q, k, v = cut.heads(q, k, v)
  return cut.back(attention_of_scores(q, k, v, how))
end)

-- x:documents(eos, longest): of tokens [batch, sequence] that are documents one after the other, each ended by a
-- token eos: the number of each token's document, counted from 0 in each row, and its place in it, for
-- the option `documents` of attention and for its positions. Of tokens(words, {documents = eos, longest = n}) they are
-- known. longest: no document has more tokens in a row, which the program checks; attention needs no keys further away.
--- F.documents(input, eos?, longest?): of tokens in which each document ends with `eos`: the number of each token's
--- document, and its place in it. Of `tokens(words, {documents = eos})` both are known. `longest`: no document has
--- more tokens, which the program checks.
method("documents", function(input, eos, longest)
  base.tensor(input, "the tokens")
  local kind, shape = core.type(input), core.shape(input)
  if (kind ~= "int32" and kind ~= "int64") or #shape == 0 then
    misfit("it takes tokens, whole numbers [batch, sequence], not %s of shape %s", kind, shape_text(shape))
  end
  local known = base.documents_in(input)
  eos, longest = eos == nil and known.eos or eos, longest == nil and known.longest or longest
  if eos == nil then misfit("say which token ends a document: x:documents(2)") end
  base.whole(eos, "the token that ends a document", 0, (1 << 31) - 1)
  if longest ~= nil then base.whole(longest, "the tokens of the longest document", 1, (1 << 31) - 1) end
  local tokens, reorder = base.whole_sequences(known.ends or input)
  local number, place = append("documents", {raw.to(tokens, "int32")}, {dims = {#shape - 1}, eos = eos})
  local is_bound = longest and longest < shape[#shape] -- else any row is short enough
  if is_bound then
    -- Tokens beyond the longest document are noted, and belong to no document.
    place = base.indices(place, "the place in a document", longest, nil, string.format("documents (longest = %d)", longest))
    number = raw.where(raw.lt(place, 0), -1, number)
  end
  if reorder then number, place = reorder(number), reorder(place) end
  longest_of[number] = is_bound and longest or nil
  return number, place
end)

-- ----------------------------------------------------------------------------------------- rotary

local PI = math.pi

local function positive(v, what)
  if type(v) ~= "number" or not (v > 0 and v < math.huge) then
    misfit("%s must be a number above 0, not %s", what, math.type(v) and tostring(v) or base.a(v))
  end
  return v + 0.0
end

-- Inverse frequencies: the angle of each pair from one position to the next, in float32 and in the order
-- of operations of Hugging Face's tables: equal to theirs to the last bit but one.
local function inverse_frequencies(size, theta)
  local even = raw.to(raw.mul(base.index_row(size // 2), 2), "float32")
  local exponent = append("div", {even, raw.full({}, size + 0.0)})
  return raw.div(1, raw.pow(theta, exponent))
end

-- Llama 3.1's scaling: low frequencies become lower by `factor`, with a smooth transition between
-- two frequencies.
local function stretched_as_llama3(frequency, s)
  local factor, low, high = s.factor, s.low_freq_factor, s.high_freq_factor
  local length = s.original_max_position_embeddings
  if not (low < high) then
    misfit("low_freq_factor must be below high_freq_factor: they are %g and %g", low, high)
  end
  local wave = raw.div(2 * PI, frequency)
  local share = append("div", {raw.sub(raw.div(length, wave), low), raw.full({}, high - low)})
  local slower = append("div", {frequency, raw.full({}, factor)})
  local passage = raw.add(
    append("div", {raw.mul(raw.sub(1.0, share), frequency), raw.full({}, factor)}),
    raw.mul(share, frequency))
  local is_slow, is_quick = raw.gt(wave, length / low), raw.lt(wave, length / high)
  return raw.where(is_quick, frequency, raw.where(is_slow, slower, passage))
end

local LLAMA3 = {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}

local YARN = {"factor", "original_max_position_embeddings"}
local FACTORS_OF_YARN = {"attention_factor", "mscale", "mscale_all_dim"} -- may be left out, or 0

-- YaRN's: pairs that rotate often within the original length keep their angle, those that rotate less than
-- once in it have one lower by `factor`, with a line between. The second result multiplies cosines and
-- sines.
local function stretched_as_yarn(frequency, s, theta)
  local half = core.shape(frequency)[1]
  local function pair_of(rotations) -- the pair that rotates so often, as a number with a fraction
    return half * math.log(s.original_max_position_embeddings / (rotations * 2 * PI)) / math.log(theta)
  end
  local low, high = pair_of(s.beta_fast), pair_of(s.beta_slow)
  if s.truncate then low, high = math.floor(low), math.ceil(high) end
  low, high = math.max(low, 0), math.min(high, 2 * half - 1)
  local width = low == high and 0.001 or high - low
  local place = raw.to(base.index_row(half), "float32")
  local slow = raw.clamp(append("div", {raw.sub(place, low + 0.0), raw.full({}, width + 0.0)}), 0, 1)
  local slower = append("div", {frequency, raw.full({}, s.factor)})
  local function logarithmic(times) return s.factor <= 1 and 1 or 0.1 * times * math.log(s.factor) + 1 end
  local times = s.attention_factor
    or s.mscale and s.mscale_all_dim and logarithmic(s.mscale) / logarithmic(s.mscale_all_dim) or logarithmic(1)
  return raw.add(raw.mul(slower, slow), raw.mul(frequency, raw.sub(1.0, slow))), times
end

-- [n] with these numbers.
local function row_of(numbers)
  local place, row = base.index_row(#numbers), raw.full({#numbers}, numbers[#numbers])
  for i = #numbers - 1, 1, -1 do
    if numbers[i] ~= numbers[i + 1] then row = raw.where(raw.lt(place, i), numbers[i], row) end
  end
  return row
end

-- LongRoPE's: each pair has a factor of its own, one of two lists' by the length of the sequence. The second result
-- multiplies cosines and sines.
local function stretched_as_longrope(frequency, s, theta)
  local half, original = core.shape(frequency)[1], s.original_max_position_embeddings
  local name = s.sequence_length > original and "long_factor" or "short_factor"
  if #s[name] ~= half then
    misfit("scaling's %s must have a number for each of the %d pairs, not %d", name, half, #s[name])
  end
  local even = raw.to(raw.mul(base.index_row(half), 2), "float32")
  local turns = raw.pow(theta, append("div", {even, raw.full({}, 2.0 * half)}))
  local times = s.attention_factor
    or (s.factor <= 1 and 1 or math.sqrt(1 + math.log(s.factor) / math.log(original)))
  return raw.div(1, raw.mul(row_of(s[name]), turns)), times
end

-- NTK's: theta grows with the length of a sequence that is longer than the model's.
local function stretched_as_dynamic(frequency, s, theta)
  local size, most = 2 * core.shape(frequency)[1], s.max_position_embeddings
  if size == 2 then misfit("a head of size 2 cannot be scaled dynamically") end
  local grown = s.factor * math.max(s.sequence_length, most) / most - (s.factor - 1)
  return inverse_frequencies(size, theta * grown ^ (size / (size - 2)))
end

local LONGROPE = {"factor", "original_max_position_embeddings", "sequence_length"}
local DYNAMIC = {"factor", "max_position_embeddings", "sequence_length"}
local NUMBERS = {llama3 = LLAMA3, linear = {"factor"}, yarn = YARN, longrope = LONGROPE, dynamic = DYNAMIC, default = {}}

-- scaling: {rope_type = "llama3", factor = 8, ...}, {rope_type = "linear", factor = 2} and so on, under the names of
-- Hugging Face's config.json. length: of the sequences, if the tables say it.
local function stretched(frequency, scaling, theta, length)
  if base.kind(scaling) ~= "table" then
    misfit("scaling must be a table such as {rope_type = 'linear', factor = 2}, not %s",
      base.a(scaling))
  end
  local kind, known, s = rawget(scaling, "rope_type"), {"rope_type"}, {}
  if not NUMBERS[kind] then
    misfit("rope_type must be 'llama3', 'yarn', 'linear', 'longrope', 'dynamic' or 'default', not %s", base.a(kind))
  end
  local function take(name, usual)
    local value = rawget(scaling, name)
    known[#known + 1] = name
    if value == nil then value = usual end
    s[name] = positive(value, "scaling's " .. name)
  end
  for _, name in ipairs(NUMBERS[kind]) do
    if name == "sequence_length" and not length and rawget(scaling, name) == nil then
      misfit("'%s' depends on the length of the sequences: with a tensor of positions say scaling's sequence_length", kind)
    end
    take(name, name == "sequence_length" and length or nil)
  end
  if kind == "yarn" then
    take("beta_fast", 32)
    take("beta_slow", 1)
    s.truncate = rawget(scaling, "truncate") -- the range of pairs begins and ends with whole ones
    if s.truncate == nil then s.truncate = true end
    if type(s.truncate) ~= "boolean" then misfit("scaling's truncate must be true or false, not %s", base.a(s.truncate)) end
    known[#known + 1] = "truncate"
    for _, name in ipairs(FACTORS_OF_YARN) do
      local value = rawget(scaling, name)
      if value == nil or value == 0 then known[#known + 1] = name else take(name) end
    end
  end
  if kind == "longrope" then
    if rawget(scaling, "attention_factor") ~= nil then take("attention_factor") end
    for _, name in ipairs{"short_factor", "long_factor"} do
      local list = rawget(scaling, name)
      known[#known + 1] = name
      if base.kind(list) ~= "table" or rawlen(list) == 0 then misfit("scaling's %s must be a list of numbers, not %s", name, base.a(list)) end
      s[name] = {}
      for i = 1, rawlen(list) do s[name][i] = positive(rawget(list, i), "each of scaling's " .. name) end
    end
  end
  base.options_of(scaling, known)
  if kind == "longrope" then return stretched_as_longrope(frequency, s, theta) end
  if kind == "dynamic" then return stretched_as_dynamic(frequency, s, theta) end
  if kind == "yarn" then return stretched_as_yarn(frequency, s, theta) end
  if kind == "llama3" then return stretched_as_llama3(frequency, s) end
  if kind == "linear" then return append("div", {frequency, raw.full({}, s.factor)}) end
  return frequency
end

--- F.rotary_tables(length, size, theta = 10000, scaling?): cosines and sines `[length, size / 2]`; `length` may be a
--- tensor of positions. `scaling` is config.json's: `{rope_type = "llama3", factor = 8, ...}`, `"yarn"`, `"linear"`,
--- `"longrope"` or `"dynamic"`. The last two depend on the length of the sequences: with positions `scaling` has
--- `sequence_length`, too.
define("rotary_tables", function(length, size, theta, scaling)
  local places = base.is_tensor(length) and length
  if not places then length = base.whole(length, "the sequence's length", 1, 2^31 - 1 | 0) end
  size = base.whole(size, "the size of a head", 2, 2^31 - 1 | 0)
  if size % 2 ~= 0 then misfit("the size of a head must be even, not %d", size) end
  theta = positive(theta == nil and 10000 or theta, "theta")
  local frequency, times = inverse_frequencies(size, theta), nil
  if scaling ~= nil then frequency, times = stretched(frequency, scaling, theta, not places and length or nil) end
  local place = base.floating(places or base.index_row(length))
  local angle = raw.mul(raw.unsqueeze(place, -1), frequency)
  local cos, sin = raw.cos(angle), raw.sin(angle)
  if times and times ~= 1 then return raw.mul(cos, times), raw.mul(sin, times) end
  return cos, sin
end, false)

-- Cosines or sines must broadcast to half of x without broadcasting x.
local function check_table(half, v, what)
  local shape = core.shape(base.need_floating(base.tensor(v, "the " .. what)))
  local fits = #shape >= 1 and #shape <= #half and shape[#shape] == half[#half]
  for i = 0, #shape - 1 do
    local size = shape[#shape - i]
    fits = fits and (size == 1 or size == half[#half - i])
  end
  if not fits then
    misfit("%s of shape %s do not fit the shape %s, half of the tensor", what, shape_text(shape),
      shape_text(half))
  end
end

--- F.rotary(input, cos, sin, pairs = false): rotates pairs of the last dimension: i and i + half of it, or with
--- `pairs` neighbours.
method("rotary", function(input, cos, sin, pairs)
  if pairs ~= nil and type(pairs) ~= "boolean" then
    misfit("pairs must be true or false, not %s", base.a(pairs))
  end
  local x = base.floating(input)
  local shape = core.shape(x)
  local size = shape[#shape]
  if not size or size % 2 ~= 0 then
    misfit("the last dimension must be even: the shape is %s", shape_text(shape))
  end
  local half = base.resized(shape, #shape - 1, size // 2)
  check_table(half, cos, "cosines")
  check_table(half, sin, "sines")
  if pairs then return append("rotary_pairs", {x, cos, sin}) end
  return append("rotary", {x, cos, sin}, {half = size // 2})
end)
