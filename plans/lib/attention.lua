-- What transformers share.

local M = {}

-- [batch, sequence, heads * size] as [batch, heads, sequence, size], and back.
function M.split(x, size) return x:unflatten(-1, -1, size):transpose(1, 2) end
function M.join(x) return x:transpose(1, 2):flatten(2) end

-- An activation by its name in lib/families.lua, by default silu: of x, or as a function.
function M.act(name, x)
  if name == "relu2" then return F.relu(x) ^ 2 end
  return F[name or "silu"](x)
end
function M.act_of(name)
  return function(x) return M.act(name, x) end
end

-- How the ranks along tp share the heads: as many to each; where there are fewer key-value heads than
-- ranks, several ranks have the same ones; where heads do not divide, each rank has all heads of some
-- sequences or, of fewer sequences than ranks, of some queries, against all keys. Gives the layouts of
-- queries and of keys and values, and how often keys and values are repeated.
function M.layouts(p, n_heads, n_kv_heads)
  if n_heads % p.tp == 0 and n_kv_heads % p.tp == 0 then return Shard(-1), Shard(-1), 1 end
  if n_heads % p.tp == 0 and p.tp % n_kv_heads == 0 then
    return Shard(-1), Replicate(), p.tp // n_kv_heads
  end
  if p.batch // p.dp >= p.tp then return Shard(0), Shard(0), 1 end
  return Shard(1), Replicate(), 1
end

-- Each of these heads so often.
function M.repeated(x, times)
  if times == 1 then return x end
  return x:unsqueeze(2):expand(-1, -1, times, -1, -1):flatten(1, 2)
end

-- The layout of a projection that holds q, k and v of one group of heads after the other: cut between
-- groups where they divide; else each rank has all heads of some sequences, or does the same as others.
function M.grouped(p, groups)
  if groups % p.tp == 0 then return Shard(-1) end
  return p.batch // p.dp >= p.tp and Shard(0) or Replicate()
end

-- q, k and v of [batch, sequence, groups * (r + 2) * size], where each group has r queries, a key and a
-- value: [batch, heads, sequence, size].
function M.ungroup(x, groups, size)
  local y = x:unflatten(-1, groups, -1, size)
  local r = y:size(3) - 2
  local q, k, v = y:narrow(3, 0, r):flatten(2, 3), y:select(3, r), y:select(3, r + 1)
  return q:transpose(1, 2), k:transpose(1, 2), v:transpose(1, 2)
end

-- Rotates the first elements of each head, as many as the tables are for. pairs: neighbours.
function M.rotate(x, cos, sin, pairs)
  local rotated, size = 2 * cos:size(-1), x:size(-1)
  local function rotate(y) return y:rotary(cos, sin, pairs and {pairs = true} or nil) end
  if rotated == size then return rotate(x) end
  return F.cat({rotate(x:narrow(-1, 0, rotated)), x:narrow(-1, rotated, size - rotated)}, -1)
end

-- The rotary tables of documents: positions begin anew in each. places: those of the tokens in their documents.
function M.tables_of_documents(places, seq, size, theta, scaling)
  local kind = scaling and scaling.rope_type
  if kind == "longrope" or kind == "dynamic" then
    error("rope_type '" .. kind .. "' depends on the length of each sequence: it is not there with documents")
  end
  local cos, sin = F.rotary_tables(seq, size, theta, scaling)
  return F.embedding(places, cos):unsqueeze(1), F.embedding(places, sin):unsqueeze(1)
end

-- The window of layer i, counted from 0, by a config.json; nil: none. Mistral's is for all layers, Gemma 2's for
-- every second one; Qwen's is off unless the file turns it on.
function M.window(config, i)
  local kind, windowed = config.model_type, true
  local has_all = kind == "mistral" or kind == "ministral" -- without use_sliding_window
  if has_all and not config.layer_types then return config.sliding_window end
  if config.layer_types then windowed = config.layer_types[i + 1] == "sliding_attention"
  elseif kind == "gemma2" then windowed = i % 2 == 0
  else windowed = i >= (config.max_window_layers or 28) end
  return windowed and (has_all or kind == "gemma2" or config.use_sliding_window) and config.sliding_window or nil
end

-- The embeddings x of ids. Row `pad` learns nothing from them, as with padding_idx of torch.nn.Embedding.
function M.padded(x, ids, pad)
  if not pad then return x end
  return F.where(ids:eq(pad):unsqueeze(-1), x:detach(), x)
end

-- n modules in a list; numbered: each is made of its number, counted from 0.
function M.layers(n, class, numbered)
  local list = {}
  for i = 1, n do list[i] = numbered and class(i - 1) or class() end
  return nn.ModuleList(list)
end

-- The output of a model whose embedding is its last weight, too.
M.Tied = nn.module("Tied", function(self)
  function self:forward(x, weight) return F.linear(x, weight) end
end)

-- Its style, or that of a Linear, under loss parallel: the logits stay cut over the vocabulary. input: how its input
-- is cut; by default it is whole.
function M.output(tied, input)
  if not tied then return Colwise{input_layouts = input or Replicate(), output_layouts = Shard(-1), use_local_output = false} end
  return PrepareModuleInputOutput{
    input_layouts = input and {input, false} or nil,
    desired_input_layouts = {Replicate(), false},
    desired_output_layouts = Shard(-1),
  }
end

return M
