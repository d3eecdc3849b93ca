-- Reads a Hugging Face model's config.json, and checks its fields.

local M = {}

-- What a field of config.json must be, by kind: a test, and its words.
local MOST = 2^31 - 1
local function is_whole(v, least) return math.type(v) == "integer" and v >= least and v <= MOST end
local function is_list_of(v, is)
  if type(v) ~= "table" then return false end
  for key in pairs(v) do
    if math.type(key) ~= "integer" then return false end
  end
  for i = 1, #v do
    if not is(v[i]) then return false end
  end
  return true
end
local function is_text(v) return type(v) == "string" end
local function is_size(v) return is_whole(v, 1) end
local KINDS = {
  size = {is_size, "a whole number, 1 or more"},
  count = {function(v) return is_whole(v, 0) end, "a whole number, 0 or more"},
  token = {function(v) return is_whole(v, -MOST) end, "a whole number"},
  positive = {function(v) return type(v) == "number" and v > 0 and v < math.huge end, "a number above 0"},
  small = {function(v) return type(v) == "number" and v >= 0 and v < 1 end, "a number from 0 to 1"},
  part = {function(v) return type(v) == "number" and v > 0 and v <= 1 end, "a number above 0, at most 1"},
  flag = {function(v) return type(v) == "boolean" end, "true or false"},
  text = {is_text, "a text"},
  texts = {function(v) return is_list_of(v, is_text) end, "a list of texts"},
  sizes = {function(v) return is_list_of(v, is_size) and #v > 0 end, "a list of whole numbers, each 1 or more"},
  counts = {function(v) return is_list_of(v, function(n) return is_whole(n, 0) end) end,
    "a list of whole numbers, each 0 or more"},
  table = {function(v) return type(v) == "table" and #v == 0 end, "an object"},
}

-- All fields that plans read.
local FIELDS = {}
for kind, names in pairs{
  size = "hidden_size num_hidden_layers num_attention_heads num_key_value_heads head_dim intermediate_size vocab_size "
    .. "max_position_embeddings type_vocab_size n_embd n_layer n_head n_inner n_positions num_kv_heads ffn_hidden_size "
    .. "image_size patch_size num_channels embedding_size sliding_window moe_intermediate_size num_experts "
    .. "num_local_experts num_experts_per_tok n_routed_experts n_group topk_group kv_lora_rank q_lora_rank "
    .. "qk_rope_head_dim qk_nope_head_dim v_head_dim original_max_position_embeddings no_rope_layer_interval "
    .. "decoder_sparse_step sliding_window_pattern shared_expert_intermediate_size ffn_dim rotary_dim d_model n_heads n_layers "
    .. "max_seq_len",
  count = "max_window_layers first_k_dense_replace n_shared_experts num_ln_in_parallel_attn",
  token = "pad_token_id",
  positive = "rms_norm_eps layer_norm_eps layer_norm_epsilon rope_theta rotary_emb_base query_pre_attn_scalar "
    .. "attn_logit_softcapping final_logit_softcapping routed_scaling_factor factor embedding_multiplier logits_scaling "
    .. "residual_multiplier attention_multiplier swiglu_limit swiglu_alpha rope_local_base_freq llama_4_scaling_beta logit_scale "
    .. "norm_epsilon norm_eps clip_qkv softmax_scale",
  small = "hidden_dropout_prob attention_probs_dropout_prob resid_pdrop embd_pdrop attn_pdrop attention_dropout "
    .. "residual_dropout embedding_dropout hidden_dropout dropout",
  part = "rotary_pct partial_rotary_factor",
  flag = "tie_word_embeddings attention_bias use_sliding_window use_parallel_residual rope_interleave qkv_bias "
    .. "norm_topk_prob new_decoder_architecture multi_query parallel_attn bias mlp_bias output_router_logits "
    .. "scale_attn_weights scale_attn_by_inverse_layer_idx alibi use_bias use_qkv_bias attention_out_bias use_qk_norm "
    .. "qk_layernorm",
  text = "model_type hidden_act hidden_activation activation activation_function layer_type rope_type type",
  texts = "layer_types", sizes = "hidden_sizes depths", counts = "mlp_only_layers no_rope_layers",
  table = "id2label rope_parameters rope_scaling text_config sliding_attention full_attention attn_config",
} do
  for name in string.gmatch(names, "%S+") do FIELDS[name] = KINDS[kind] end
end

local function shown(v)
  if type(v) == "table" then
    for key in pairs(v) do return math.type(key) and "a list" or "an object" end
    return "an empty list or object"
  end
  return type(v) == "string" and "'" .. v .. "'" or tostring(v)
end

-- The table of a file as one whose fields are looked at when they are read; nil is nothing. where: how messages begin.
-- usual: what a field is that the file does not have; `has` says whether it does.
local function checked(fields, where, usual, has)
  return setmetatable({}, {__index = function(_, key)
    local value, kind = fields[key], FIELDS[key] or error("no field '" .. tostring(key) .. "' is declared here")
    if value == nil and usual and usual[key] ~= nil and not has(key) then return usual[key] end
    if value ~= nil and not kind[1](value) then
      error(where .. key .. " must be " .. kind[2] .. ", not " .. shown(value))
    end
    return value
  end})
end

-- The model_type of a config.json.
function M.model_type(path) return checked(read_json(path), path .. ": ").model_type end

-- Models of images and text, by their model_type, and what the text model's is where the file does not say it.
local WRAPPERS = {gemma3 = "gemma3_text", mistral3 = "mistral"}

-- A Hugging Face model's config.json, or a table of its fields, and functions that read it. types: the model_type that the
-- plan knows. at: its fields. need(key) is an error where the key is missing; only(key, value) where it is anything else.
-- within(key): at and only of an object in the file. usual: of a model_type, the fields that a file may leave out; also:
-- other names of fields that the file may have, and the names by which they are read.
function M.config(path, types, usual, also)
  local config, with_nulls = path, path
  if type(path) == "string" then config, with_nulls = read_json(path), read_json(path, false) else path = "this plan" end
  local of = {path = path}
  local wrapper = checked(config, path .. ": ").model_type
  if WRAPPERS[wrapper] then -- its text model
    local whole = checked(config, path .. ": ")
    local tied = whole.tie_word_embeddings
    config, with_nulls = whole.text_config or {}, with_nulls.text_config or {}
    config.model_type, of.prefix = config.model_type or WRAPPERS[wrapper], "language_model.model."
    if wrapper ~= "gemma3" then
      if tied == nil then error(path .. ": tie_word_embeddings is missing beside text_config: say it, as the file of weights has it") end
      config.tie_word_embeddings, with_nulls.tie_word_embeddings, of.head = tied, tied, "language_model.lm_head"
    end
  end
  -- Whether the file has the key, be it null; null rope_parameters are none to transformers, too.
  function of.has(key) return with_nulls[key] ~= nil and key ~= "rope_parameters" end
  local kind = checked(config, path .. ": ").model_type
  for other, name in pairs(also and kind and also(kind) or {}) do
    if with_nulls[name] == nil then config[name], with_nulls[name] = config[other], with_nulls[other] end
  end
  local at = checked(config, path .. ": ", usual and kind and usual(kind), of.has)
  of.at = at
  function of.need(key)
    local value = at[key]
    if value == nil then error(path .. " has no '" .. key .. "'") end
    return value
  end
  local function only(fields, where, key, known)
    local value = fields[key]
    if value ~= nil and value ~= false and value ~= known or value == false and known then
      error(path .. ": " .. where .. key .. " is " .. shown(value) .. "; this plan knows "
        .. (known == nil and "null or false" or tostring(known)) .. " alone")
    end
  end
  function of.only(key, known) only(config, "", key, known) end
  -- The fields of an object in the file: as `at`, and a function as `only`.
  function of.within(key)
    local where, fields = key .. ".", at[key] or {}
    return checked(fields, path .. ": " .. where), function(name, known) only(fields, where, name, known) end
  end
  -- The token whose row of the embedding learns nothing, or nil. usual: Hugging Face's where the file does not
  -- say it; negative ones count from the end of `vocab` rows.
  function of.pad(vocab, usual_pad)
    local pad = at.pad_token_id
    if pad == nil and not of.has("pad_token_id") then pad = usual_pad end
    return pad and pad < 0 and pad + vocab or pad
  end
  local is_known = false
  for _, name in ipairs(types) do is_known = is_known or kind == name end
  if not is_known then
    error(path .. ": model_type is " .. tostring(kind) .. "; this plan knows " .. table.concat(types, ", ")
      .. "; of any model an archive of torch.export will do: plans/torch_export.lua")
  end
  local layers, layer_types = config.num_hidden_layers, config.layer_types ~= nil and at.layer_types or nil
  if layer_types and math.type(layers) == "integer" and #layer_types ~= layers then
    error(path .. ": layer_types has " .. #layer_types .. " texts; num_hidden_layers is " .. layers)
  end
  return of
end

-- The field with the rotary embedding's scaling: rope_scaling counts unless it is empty.
local function scaled_by(config)
  for _ in pairs(config.rope_scaling or {}) do return "rope_scaling" end
  return "rope_parameters"
end

-- What that field has.
function M.rope_fields(config)
  local from = scaled_by(config)
  return checked(config[from] or {}, from .. ".")
end

-- The rotary embedding's angle and scaling, and the part of a head that is rotated, or nil. As transformers reads it: newer
-- files have all in rope_parameters; of a file with both rope_scaling counts; what an object does not say is beside it.
-- config: the fields of M.config. layer_type: the type of the layers, where each type has an embedding of its own.
function M.rope(config, layer_type)
  local from = scaled_by(config)
  local fields, scaling = config[from] or {}, {}
  if layer_type and from == "rope_parameters" then
    from = from .. "." .. layer_type
    fields = checked(fields, "rope_parameters.")[layer_type] or {}
  elseif layer_type == "sliding_attention" then
    fields = {}
  end
  local rope = checked(fields, from .. ".")
  -- `finetuned` is a note of YaRN's authors.
  local elsewhere = {rope_theta = true, type = true, partial_rotary_factor = true, finetuned = true}
  if config.model_type == "ministral3" then elsewhere.llama_4_scaling_beta, elsewhere.max_position_embeddings = true, true end
  if config.model_type == "phi3" then elsewhere.long_mscale, elsewhere.short_mscale = true, true end -- transformers does not read them
  for key, value in pairs(fields) do
    if not elsewhere[key] then scaling[key] = value end
  end
  if layer_type and from == "rope_scaling" and rope.type and not rope.rope_type then
    error("rope_scaling has 'type' and no 'rope_type', which transformers does not read where layers have embeddings of "
      .. "their own: write rope_type")
  end
  local kind = rope.rope_type or rope.type or "default"
  local longest, is_phi3 = config.max_position_embeddings, config.model_type == "phi3"
  if is_phi3 and (kind == "su" or kind == "yarn") then kind = "longrope" end -- as its first files say it
  scaling.rope_type = kind
  if kind == "yarn" or kind == "llama3" or kind == "longrope" then
    scaling.original_max_position_embeddings = config.original_max_position_embeddings
      or is_phi3 and 4096 or rope.original_max_position_embeddings or longest
    if kind ~= "llama3" and not rope.factor and longest then
      scaling.factor = longest / scaling.original_max_position_embeddings
    end
  end
  if kind == "default" or kind == "linear" then scaling.original_max_position_embeddings = nil end
  if kind == "dynamic" then
    scaling.max_position_embeddings, scaling.original_max_position_embeddings = longest, nil
  end
  local base, part = config.rope_theta, config.partial_rotary_factor
  if config.model_type == "gpt_neox" then base, part = config.rotary_emb_base, config.rotary_pct end -- and no other ones
  if layer_type == "sliding_attention" then base = config.rope_local_base_freq or base end
  return rope.rope_theta or base, scaling, rope.partial_rotary_factor or part
end

-- A scaling of M.rope for training on sequences of this length: by it transformers chooses LongRoPE's factors, and
-- stretches theta dynamically.
function M.scaling_of(scaling, length)
  local kind = scaling and scaling.rope_type
  if kind ~= "longrope" and kind ~= "dynamic" then return scaling end
  local copy = {sequence_length = length}
  for key, value in pairs(scaling) do copy[key] = value end
  return copy
end

-- The same for a program that generates within this context. A program has one rotary embedding; transformers changes
-- it where a sequence passes a length. long: it is that of longer sequences.
function M.scaling_within(scaling, context, long)
  local kind = scaling and scaling.rope_type
  if kind == "dynamic" and context > (scaling.max_position_embeddings or context) then
    error(string.format("rope_type is 'dynamic': beyond %d tokens each token would change the rotary embedding of all, and a "
      .. "program has one: say context = %d, or less", scaling.max_position_embeddings, scaling.max_position_embeddings))
  end
  local original = kind == "longrope" and scaling.original_max_position_embeddings
  if not original then
    if long then error("long_rope is for models whose rope_type is 'longrope'") end
    return M.scaling_of(scaling, context)
  end
  if context <= original and long then
    error("long_rope is for contexts of more than " .. original .. " tokens: this one has " .. context)
  end
  if context > original and not long then
    error(string.format("rope_type is 'longrope': transformers has other factors for sequences of up to %d tokens than for longer ones, "
      .. "and a program has one of the two: say context = %d, or less, or long_rope = true, by which shorter sequences have the "
      .. "factors of longer ones, too", original, original))
  end
  return M.scaling_of(scaling, context)
end

-- How many names a table has, such as a configuration's id2label; nil where there is none.
function M.count(names)
  local n = 0
  for _ in pairs(names or {}) do n = n + 1 end
  return names and n or nil
end

-- The names in files of an archive's parameters, where the model was exported within another module: without the first part,
-- which all names have. modules: as torch_export gives them.
function M.without_wrapper(modules)
  local first
  for _, m in ipairs(modules) do
    local part = m.path:match("^([^.]+)%.")
    if not part or first and part ~= first then return nil end
    first = part
  end
  return first and {[first .. ".**"] = "**"} or nil
end

return M
