-- Families of language models: what each model_type of a Hugging Face config.json is, as lib/causal_lm.lua builds it. A row
-- has what all models of the family share; `read` takes what differs from the file. Keys that a file lacks have the
-- defaults of transformers' class. A model of another kind is an error that lists what is known.
--
-- A row, and what families.read gives (sizes that a file leaves to follow from others are nil until families.complete):
--
--   files         where files have the parts: {prefix =, embed =, positions =, embed_norm =, layers =, norm =, head =}; the rows
--                 of positions begin behind first_position others; embed_norm: of the embeddings; head_file: the head's name
--                 in files, where it is not `head`
--   pads          the embedding of pad_token_id learns nothing
--   norm          "rms", "rms_plus_one" (of 1 + weight), "layer", "layer_plus_one", "layer_without_bias", "layer_without_weight"
--   norms         a layer's norms by where they are: {before_attention =, behind_attention =, before_mlp =, behind_mlp =},
--                 their names. Without before_mlp and with `parallel` the feed-forward network reads attention's input
--   parallel      attention and the feed-forward network read the same x
--   attention     {name =, out =, kind =, joined =}: kind "separate" (q_proj, k_proj, v_proj), "joined" (one weight, all q,
--                 then all k and v), "grouped" (one weight, group by group), "conv" (GPT-2's), "latent" (DeepSeek's)
--   mlp           {name =, kind =, up =, down =}: kind "gated" (gate_proj, up_proj), "joined" (one weight of both), "plain",
--                 "conv"; in_layer: files have its parts in the layer itself
--   experts       of layers with experts: see of_experts below
--   query_norms   of q and k: "heads", each head, by one weight; "each", each head by a weight of its own; "whole", all together
--   query_names   how files call these norms, by default {"q_norm", "k_norm"}; norms_rotated: they are behind the rotation;
--                 norms_by_head: files have a tensor for each head of "each"
--   clip          q, k and v are held between -clip and clip
--   bias          {qkv =, out =, mlp =, head =}: which projections have one
--   rotary        {theta =, scaling =, part =}; sliding_rotary of layers with a window, where it is another one
--   pairs         neighbours of a head are rotated, not i and i + half
--   rotates_parts  transformers' class reads partial_rotary_factor
--   scales_queries  q grows with its position: query_scale = {beta =, length =} (Llama 4's)
--   alibi         scores have a bias that grows with the key's position, and nothing is rotated: "scaled", rounded to
--                 bfloat16 and scaled as the scores are, as Falcon's, or "plain"
--   window(i), rotates(i)    of layer i, counted from 0: the window or nil; whether q and k are rotated
--   scale_of(i)   of attention's scores in layer i, where it is not `scale`
--   act, scale, softcap, last_softcap, sinks, embed_scale, residual_scale, logits_scale, dropout, embed_dropout,
--   attention_dropout, tied, pad, eps, dim, n_layers, n_heads, n_kv_heads, head_dim, hidden, vocab, positions
local hugging_face = require "lib.hugging_face"

local M = {}

-- ------------------------------------------------------------------------------------- what rows share

local FILES = {prefix = "model.", embed = "embed_tokens", layers = "layers", norm = "norm", head = "lm_head"}
local LLAMA = {
  files = FILES, pads = true, norm = "rms", norms = {before_attention = "input_layernorm", before_mlp = "post_attention_layernorm"},
  attention = {name = "self_attn", kind = "separate", out = "o_proj"}, mlp = {name = "mlp", kind = "gated"},
}

local function row(of, changes)
  local made = {}
  for key, value in pairs(of) do made[key] = value end
  for key, value in pairs(changes) do made[key] = value end
  return made
end

-- The activations that files name.
local ACTS = {silu = "silu", swish = "silu", gelu = "gelu", gelu_new = "gelu_tanh", gelu_pytorch_tanh = "gelu_tanh",
  gelu_fast = "gelu_tanh", relu = "relu", relu2 = "relu2"}

local function act_of(config, key)
  local name = config.need(key)
  return ACTS[name] or error(config.path .. ": " .. key .. " is '" .. name .. "'; known are gelu, gelu_fast, gelu_new, "
    .. "gelu_pytorch_tanh, relu, relu2, silu and swish")
end

-- What most configurations say in the same way.
local function usual(c, config)
  local need, at = config.need, config.at
  c.dim, c.n_layers, c.n_heads = need("hidden_size"), need("num_hidden_layers"), need("num_attention_heads")
  c.n_kv_heads, c.head_dim = at.num_key_value_heads, at.head_dim
  c.hidden, c.vocab, c.eps = need("intermediate_size"), need("vocab_size"), at.rms_norm_eps
  c.act, c.attention_dropout = act_of(config, "hidden_act"), at.attention_dropout
end

-- Layers with a window: by layer_types, else those of `usual`, a function of the layer's number.
local function has_windows(c, config, usual_layers)
  local at = config.at
  function c.window(i)
    local types = at.layer_types
    local windowed = usual_layers(i)
    if types then windowed = types[i + 1] == "sliding_attention" end
    return windowed and at.sliding_window or nil
  end
end
local function all_layers() return true end
local function every_second(i) return i % 2 == 0 end

-- everywhere: also of what comes out of the attention; in_mlp: the family reads mlp_bias.
local function has_bias(c, at, everywhere, in_mlp)
  c.bias = {qkv = at.attention_bias, out = everywhere and at.attention_bias, mlp = in_mlp and at.mlp_bias}
end

-- ------------------------------------------------------------------------------------------ experts

-- Of layers with experts: {count =, top_k =, hidden =, normalize =, files =, ...}: options of nn.MoE, and how files call them.
-- kind = "clamped": gpt-oss's own.
local MIXTRAL = {gate = "block_sparse_moe.gate.weight", experts = "block_sparse_moe.experts.{}.",
  gate_proj = "w1.weight", up_proj = "w3.weight", down_proj = "w2.weight"}
local QWEN = {gate = "mlp.gate.weight", experts = "mlp.experts.{}.", gate_proj = "gate_proj.weight",
  up_proj = "up_proj.weight", down_proj = "down_proj.weight"}
-- The experts of a layer as one tensor, in which a gate's rows stand before those of `up`.
local GRANITE = {gate = "block_sparse_moe.router.layer.weight", experts = "block_sparse_moe.",
  gate_proj = {tensor = "input_linear.weight", dim = 1, part = 1, of = 2},
  up_proj = {tensor = "input_linear.weight", dim = 1, part = 2, of = 2}, down_proj = "output_linear.weight"}
M.MIXTRAL, M.QWEN = MIXTRAL, QWEN

-- What files call a layer's parameter of its experts: a name, or a part of a tensor.
function M.expert_name(layers, files, name)
  local prefix, file = layers .. ".*." .. files.experts, files[name]
  if type(file) == "string" then return prefix .. file end
  return {tensor = prefix .. file.tensor, dim = file.dim, part = file.part, of = file.of}
end

-- The fields that most of them say in the same way.
local function usual_experts(c, config)
  usual(c, config)
  c.router_loss = config.at.output_router_logits
  c.experts = {count = config.at.num_experts or config.need("num_local_experts"), top_k = config.need("num_experts_per_tok"),
    hidden = c.hidden, normalize = config.at.norm_topk_prob, files = QWEN}
end

local function of_mixtral(c, config)
  usual_experts(c, config)
  config.only("router_jitter_noise", 0)
  function c.window() return config.at.sliding_window end -- whatever layer_types says
  c.experts.normalize, c.experts.files = true, MIXTRAL
end

local function of_qwen_moe(c, config)
  local at = config.at
  usual_experts(c, config)
  c.experts.hidden = config.need("moe_intermediate_size")
  if at.model_type == "qwen2_moe" then
    config.only("use_sliding_window", false)
    c.bias, c.experts.shared, c.experts.shared_gate = {qkv = at.qkv_bias}, config.need("shared_expert_intermediate_size"), true
  else
    has_bias(c, at, true)
    function c.window() return at.use_sliding_window and at.sliding_window or nil end -- whatever layer_types says
    c.query_norms = "heads"
  end
  local step, dense = at.decoder_sparse_step or 1, {}
  for _, i in ipairs(at.mlp_only_layers or {}) do dense[i] = true end
  function c.experts.of_layer(i) return not dense[i] and (i + 1) % step == 0 end
end

local function of_olmoe(c, config)
  usual_experts(c, config)
  has_bias(c, config.at, true)
  c.query_norms, c.clip = "whole", config.at.clip_qkv
end

-- DeepSeek-V3's: chosen by a sigmoid, in groups, beside a network that all tokens take.
local function has_deepseeks_experts(c, config)
  local need, at = config.need, config.at
  usual(c, config)
  config.only("scoring_func", "sigmoid")
  config.only("topk_method", "noaux_tc")
  config.only("moe_layer_freq", 1)
  local hidden, dense, shared = need("moe_intermediate_size"), at.first_k_dense_replace or 0, at.n_shared_experts or 0
  c.experts = {count = need("n_routed_experts"), top_k = need("num_experts_per_tok"), hidden = hidden,
    normalize = at.norm_topk_prob, router = "sigmoid", scale = need("routed_scaling_factor"), groups = at.n_group or 1,
    top_groups = at.topk_group or 1, shared = shared > 0 and shared * hidden or nil, balanced = true, files = QWEN,
    of_layer = function(i) return i >= dense end}
end

local function of_deepseek(c, config)
  local need, at = config.need, config.at
  has_deepseeks_experts(c, config)
  config.only("attention_dropout", 0)
  c.latent = {queries = at.q_lora_rank, keys = need("kv_lora_rank"), nope = need("qk_nope_head_dim"),
    rope = need("qk_rope_head_dim"), value = need("v_head_dim"), pairs = at.rope_interleave ~= false, bias = at.attention_bias}
  c.head_dim = c.latent.rope
end

local function of_glm4_moe(c, config)
  has_deepseeks_experts(c, config)
  has_bias(c, config.at)
  c.router_loss = config.at.output_router_logits
  c.query_norms = config.at.use_qk_norm and "heads" or nil
end

local function of_gpt_oss(c, config)
  usual_experts(c, config)
  has_bias(c, config.at, true)
  has_windows(c, config, every_second)
  c.sinks, c.experts.kind = true, "clamped"
  c.experts.limit, c.experts.alpha = config.at.swiglu_limit, config.at.swiglu_alpha
end

-- --------------------------------------------------------------------------------------- the others

local function of_llama(c, config)
  usual(c, config)
  has_bias(c, config.at, true, true)
end

-- transformers fails, or masks the layers all the same.
local function check_windows(config)
  if config.at.use_sliding_window then return end
  for _, kind in ipairs(config.at.layer_types or {}) do
    if kind == "sliding_attention" then
      error(config.path .. ": layer_types has sliding_attention, and use_sliding_window is false: say true, or full_attention")
    end
  end
end

local function of_smollm(c, config)
  usual(c, config)
  has_bias(c, config.at, true, true)
  check_windows(config)
  local at, every = config.at, config.at.no_rope_layer_interval or 4
  local listed = at.no_rope_layers
  function c.rotates(i)
    if listed then return listed[i + 1] ~= 0 end
    return (i + 1) % every ~= 0
  end
  function c.window(i)
    local kind = at.layer_types and at.layer_types[i + 1] or not c.rotates(i) and "sliding_attention"
    return at.use_sliding_window and kind == "sliding_attention" and at.sliding_window or nil
  end
end

local function of_mistral(c, config)
  usual(c, config)
  has_windows(c, config, all_layers)
end

local function of_ministral3(c, config)
  usual(c, config)
  function c.window() return config.at.sliding_window end -- whatever layer_types says
end

local function of_seed_oss(c, config)
  local at = config.at
  usual(c, config)
  c.bias = {qkv = at.attention_bias, out = at.attention_out_bias, mlp = at.mlp_bias}
  c.dropout = at.residual_dropout
end

local function of_ernie(c, config)
  local bias = config.at.use_bias
  usual(c, config)
  c.attention_dropout, c.bias = nil, {qkv = bias, out = bias, mlp = bias}
end

local function of_helium(c, config)
  usual(c, config)
  has_bias(c, config.at, false, true)
end

local function of_hunyuan(c, config)
  usual(c, config)
  has_bias(c, config.at, true)
  c.query_norms = "heads"
end

-- A layer in every `sliding_window_pattern` has no window; that one is not rotated where others have windows.
local function rotates_within_windows(c, config, of_all)
  local at = config.at
  has_windows(c, config, function(i) return (i + 1) % (at.sliding_window_pattern or 4) ~= 0 end)
  function c.rotates(i) return of_all or c.window(i) ~= nil end
end

local function of_exaone(c, config)
  usual(c, config)
  c.query_norms = "heads"
  rotates_within_windows(c, config, config.at.sliding_window == nil)
end

local function of_starcoder(c, config)
  local at, bias = config.at, config.at.use_bias
  usual(c, config)
  c.eps, c.bias = at.norm_epsilon, {qkv = bias, out = bias, mlp = bias}
  c.dropout, c.embed_dropout = at.residual_dropout, at.embedding_dropout
  function c.window() return at.sliding_window end
end

local function of_phi(c, config)
  local at = config.at
  usual(c, config)
  c.query_norms, c.query_names = at.qk_layernorm and "heads" or nil, {"q_layernorm", "k_layernorm"}
  c.eps, c.bias = at.layer_norm_eps, {qkv = true, out = true, mlp = true, head = true}
  c.dropout, c.embed_dropout = at.resid_pdrop, at.embd_pdrop
end

local function of_stablelm(c, config)
  local at = config.at
  usual(c, config)
  c.query_norms, c.query_names, c.norms_by_head = at.qk_layernorm and "each" or nil, {"q_layernorm", "k_layernorm"}, true
  config.only("hidden_dropout", 0)
  c.eps, c.bias, c.head_dim, c.parallel = at.layer_norm_eps, {qkv = at.use_qkv_bias}, nil, at.use_parallel_residual
  if c.parallel then c.norms = {before_attention = "input_layernorm"} end
end

local function of_nemotron(c, config)
  usual(c, config)
  has_bias(c, config.at, true, true)
  c.eps = config.at.norm_eps
end

local function of_cohere(c, config)
  local at = config.at
  usual(c, config)
  has_bias(c, at, true)
  c.eps, c.logits_scale = at.layer_norm_eps, config.need("logit_scale")
  if at.model_type == "cohere" then
    c.query_norms = at.use_qk_norm and "each" or nil
    return
  end
  c.head_dim = nil
  rotates_within_windows(c, config)
end

-- Windows are off unless the file turns them on.
local function has_qwens_windows(c, config)
  check_windows(config)
  local at = config.at
  if at.use_sliding_window then has_windows(c, config, function(i) return i >= at.max_window_layers end) end
end

local function of_qwen2(c, config)
  usual(c, config)
  c.bias = {qkv = true}
  has_qwens_windows(c, config)
end

local function of_qwen3(c, config)
  usual(c, config)
  has_bias(c, config.at, true)
  c.query_norms = "heads"
  has_qwens_windows(c, config)
end

-- Gemma's act is hidden_act, in which the first files' gelu is gelu_pytorch_tanh; later ones' is hidden_activation.
local function of_gemma(c, config)
  local at = config.at
  config.only("use_bidirectional_attention", nil)
  usual(c, config)
  has_bias(c, at, true)
  c.embed_scale = c.dim ^ 0.5
  if at.model_type == "gemma" then
    if c.act == "gelu" then c.act = "gelu_tanh" end
    return
  end
  c.act = act_of(config, "hidden_activation")
  c.queries_by = at.query_pre_attn_scalar
  c.scale, c.softcap, c.last_softcap = c.queries_by ^ -0.5, at.attn_logit_softcapping, at.final_logit_softcapping
  local every = at.model_type == "gemma2" and 2 or at.sliding_window_pattern
  has_windows(c, config, function(i) return (i + 1) % every ~= 0 end)
end

local function of_gemma3(c, config)
  of_gemma(c, config)
  if config.at.attn_logit_softcapping then error(config.path .. ": transformers' Gemma 3 leaves out attn_logit_softcapping") end
  c.softcap, c.query_norms = nil, "heads"
end

local function of_phi3(c, config)
  local at = config.at
  usual(c, config)
  config.only("resid_pdrop", 0)
  config.only("embd_pdrop", 0)
  function c.window() return at.sliding_window end
end

local function of_olmo2(c, config)
  usual(c, config)
  has_bias(c, config.at, true)
  c.query_norms = "whole"
  if config.at.model_type == "olmo3" then has_windows(c, config, function(i) return (i + 1) % 4 ~= 0 end) end
end

local function of_granite(c, config)
  local at = config.at
  local with_experts = at.model_type == "granitemoe"
  if with_experts then
    usual_experts(c, config)
    c.experts.normalize, c.experts.files = true, GRANITE
  else
    usual(c, config)
  end
  has_bias(c, at, true, not with_experts)
  c.scale, c.embed_scale, c.residual_scale = at.attention_multiplier, at.embedding_multiplier, at.residual_multiplier
  c.logits_scale = 1 / config.need("logits_scaling")
end

local function of_glm(c, config)
  usual(c, config)
  has_bias(c, config.at)
end

local function of_gpt2(c, config)
  local need, at = config.need, config.at
  config.only("add_cross_attention", false)
  c.dim, c.n_layers, c.n_heads, c.vocab = need("n_embd"), need("n_layer"), need("n_head"), need("vocab_size")
  c.hidden, c.eps, c.act, c.positions = at.n_inner, at.layer_norm_epsilon, act_of(config, "activation_function"), need("n_positions")
  c.bias = {qkv = true, out = true, mlp = true}
  c.dropout, c.embed_dropout, c.attention_dropout = at.resid_pdrop, at.embd_pdrop, at.attn_pdrop
  local by_size, by_layer = at.scale_attn_weights, at.scale_attn_by_inverse_layer_idx
  if by_size and not by_layer then return end
  function c.scale_of(i) return (by_size and (c.dim // c.n_heads) ^ -0.5 or 1) / (by_layer and i + 1 or 1) end
end

-- It rotates rotary_dim elements of a head, by angles of its own.
local function of_gptj(c, config)
  local need, at = config.need, config.at
  config.only("tie_word_embeddings", false)
  c.dim, c.n_layers, c.n_heads, c.vocab = need("n_embd"), need("n_layer"), need("n_head"), need("vocab_size")
  c.hidden, c.eps, c.act, c.positions = at.n_inner, at.layer_norm_epsilon, act_of(config, "activation_function"), need("n_positions")
  c.bias = {mlp = true, head = true}
  c.dropout, c.embed_dropout, c.attention_dropout = at.resid_pdrop, at.embd_pdrop, at.attn_pdrop
  c.rotary = {theta = 10000, part = need("rotary_dim") / (c.dim // c.n_heads)}
end

local function of_opt(c, config)
  local need, at = config.need, config.at
  c.dim, c.n_layers, c.n_heads, c.vocab = need("hidden_size"), need("num_hidden_layers"), need("num_attention_heads"), need("vocab_size")
  for key, known in pairs{do_layer_norm_before = true, _remove_final_layer_norm = false, enable_bias = true,
    layer_norm_elementwise_affine = true, word_embed_proj_dim = c.dim, layerdrop = 0} do
    config.only(key, known)
  end
  c.hidden, c.eps, c.act, c.positions = need("ffn_dim"), 1e-5, act_of(config, "activation_function"), need("max_position_embeddings")
  c.bias = {qkv = true, out = true, mlp = true}
  c.dropout, c.attention_dropout = at.dropout, at.attention_dropout
end

local function of_bloom(c, config)
  local need, at = config.need, config.at
  config.only("apply_residual_connection_post_layernorm", false)
  c.dim, c.n_layers, c.n_heads, c.vocab = need("hidden_size"), need("n_layer"), need("n_head"), need("vocab_size")
  c.eps, c.act, c.alibi = at.layer_norm_epsilon, "gelu_tanh", "plain"
  c.bias = {qkv = true, out = true, mlp = true}
  c.dropout, c.attention_dropout = at.hidden_dropout, at.attention_dropout
end

-- Fields that transformers does not read are known with the values that it goes by.
local function of_mpt(c, config)
  local need = config.need
  local of_attention, only_attention = config.within("attn_config")
  for key, known in pairs{alibi = true, alibi_bias_max = 8, attn_type = "multihead_attention", prefix_lm = false, qk_ln = false,
    attn_uses_sequence_id = false, attn_pdrop = 0} do
    only_attention(key, known)
  end
  for key, known in pairs{expansion_ratio = 4, no_bias = true, resid_pdrop = 0, emb_pdrop = 0} do config.only(key, known) end
  config.only("logit_scale", nil)
  c.dim, c.n_layers, c.n_heads, c.vocab = need("d_model"), need("n_layers"), need("n_heads"), need("vocab_size")
  c.eps, c.act, c.alibi, c.positions = config.at.layer_norm_epsilon, "gelu", "plain", need("max_seq_len")
  c.clip, c.scale = of_attention.clip_qkv, of_attention.softmax_scale
end

local function of_olmo(c, config)
  usual(c, config)
  has_bias(c, config.at, true)
  c.eps, c.clip = 1e-5, config.at.clip_qkv
end

local function of_gpt_neox(c, config)
  local at = config.at
  usual(c, config)
  config.only("hidden_dropout", 0)
  c.eps, c.parallel = at.layer_norm_eps, at.use_parallel_residual
  c.n_kv_heads, c.head_dim = nil, nil
  c.bias = {qkv = at.attention_bias, out = at.attention_bias, mlp = true}
end

local function of_falcon(c, config)
  local need, at = config.need, config.at
  local new = at.new_decoder_architecture
  config.only("hidden_dropout", 0)
  config.only("attention_dropout", 0) -- transformers drops other things than attention's weights
  c.dim, c.n_layers, c.n_heads = need("hidden_size"), need("num_hidden_layers"), need("num_attention_heads")
  c.hidden, c.vocab = at.ffn_hidden_size, need("vocab_size")
  c.n_kv_heads = new and at.num_kv_heads or not new and at.multi_query and 1 or nil
  c.eps, c.act, c.alibi = at.layer_norm_epsilon, act_of(config, "activation"), at.alibi and "scaled" or nil
  c.bias = {qkv = at.bias, out = at.bias, mlp = at.bias}
  c.attention = row(c.attention, {kind = not new and at.multi_query and "joined" or "grouped"})
  c.parallel = new or at.parallel_attn
  local two = new and (at.num_ln_in_parallel_attn or 2) == 2
  c.norms = two and {before_attention = "ln_attn", before_mlp = "ln_mlp"}
    or {before_attention = "input_layernorm", before_mlp = not c.parallel and "post_attention_layernorm" or nil}
end

-- ------------------------------------------------------------------------------------------- the table

-- By model_type: what the family is, what its files may leave out, other names that they may use, and what reads the rest.
local AROUND = {before_attention = "input_layernorm", behind_attention = "post_attention_layernorm",
  before_mlp = "pre_feedforward_layernorm", behind_mlp = "post_feedforward_layernorm"}
local GPT2 = {files = {prefix = "transformer.", embed = "wte", positions = "wpe", layers = "h", norm = "ln_f", head = "lm_head"},
  norm = "layer", norms = {before_attention = "ln_1", before_mlp = "ln_2"},
  attention = {name = "attn", kind = "conv", joined = "c_attn", out = "c_proj"},
  mlp = {name = "mlp", kind = "conv", up = "c_fc", down = "c_proj"}}
local PLAIN = {name = "mlp", kind = "plain", up = "dense_h_to_4h", down = "dense_4h_to_h"}
local NEOX = {files = {prefix = "gpt_neox.", embed = "embed_in", layers = "layers", norm = "final_layer_norm", head = "embed_out"},
  norm = "layer", norms = LLAMA.norms, mlp = PLAIN, rotates_parts = true,
  attention = {name = "attention", kind = "grouped", joined = "query_key_value", out = "dense"}}
local FALCON = {files = {prefix = "transformer.", embed = "word_embeddings", layers = "h", norm = "ln_f", head = "lm_head"},
  norm = "layer", mlp = PLAIN,
  attention = {name = "self_attention", kind = "joined", joined = "query_key_value", out = "dense"}}
local PHI3 = row(LLAMA, {rotates_parts = true, attention = {name = "self_attn", kind = "joined", joined = "qkv_proj", out = "o_proj"},
  mlp = {name = "mlp", kind = "joined", joined = "gate_up_proj", down = "down_proj"}})
local GEMMA = row(LLAMA, {norm = "rms_plus_one"})
local GLM = row(LLAMA, {mlp = PHI3.mlp, pairs = true, rotates_parts = true})
local UP_DOWN = {name = "mlp", kind = "plain", up = "up_proj", down = "down_proj"}
local BEHIND = {behind_attention = "post_attention_layernorm", behind_mlp = "post_feedforward_layernorm"}
local COHERE = row(LLAMA, {norm = "layer_without_bias", norms = {before_attention = "input_layernorm"}, parallel = true, pairs = true})
local GEMMA_SIZES = {hidden_size = 2304, num_hidden_layers = 26, num_attention_heads = 8, num_key_value_heads = 4, head_dim = 256,
  intermediate_size = 9216, sliding_window = 4096, query_pre_attn_scalar = 256}
local OF_7B = {hidden_size = 4096, num_hidden_layers = 32, num_attention_heads = 32, intermediate_size = 11008, vocab_size = 32000,
  max_position_embeddings = 2048}
local OF_MISTRAL = row(OF_7B, {num_key_value_heads = 8, intermediate_size = 14336, max_position_embeddings = 131072})
local OF_COHERE = {hidden_size = 8192, num_hidden_layers = 40, num_attention_heads = 64, intermediate_size = 22528, vocab_size = 256000,
  max_position_embeddings = 8192, layer_norm_eps = 1e-5, rope_theta = 500000, logit_scale = 0.0625, tie_word_embeddings = true,
  pad_token_id = 0}
local OF_OLMO = row(OF_7B, {vocab_size = 50304, rms_norm_eps = 1e-5, pad_token_id = 1})
local OF_QWEN = row(OF_7B, {num_key_value_heads = 32, intermediate_size = 22016, vocab_size = 151936,
  max_position_embeddings = 32768, max_window_layers = 28})
local OF_GLM = {hidden_size = 4096, num_hidden_layers = 40, num_attention_heads = 32, num_key_value_heads = 2, head_dim = 128,
  intermediate_size = 13696, vocab_size = 151552, max_position_embeddings = 131072, rms_norm_eps = 1.5625e-07,
  attention_bias = true, partial_rotary_factor = 0.5, pad_token_id = 151329}
local NAMES_OF_GPT2 = {hidden_size = "n_embd", num_hidden_layers = "n_layer", num_attention_heads = "n_head",
  max_position_embeddings = "n_positions"}
-- What all of them leave out in the same way.
local ALL = {rms_norm_eps = 1e-6, hidden_act = "silu", rope_theta = 10000, tie_word_embeddings = false, attention_bias = false,
  mlp_bias = false, attention_dropout = 0.0, output_router_logits = false}

M.table = {
  llama = {is = LLAMA, read = of_llama, usual = OF_7B},
  smollm3 = {is = LLAMA, read = of_smollm, usual = {hidden_size = 2048, num_hidden_layers = 36, num_attention_heads = 16,
    num_key_value_heads = 4, intermediate_size = 11008, vocab_size = 128256, max_position_embeddings = 32768,
    rope_theta = 2000000, tie_word_embeddings = true, pad_token_id = 128004}},
  mistral = {is = LLAMA, read = of_mistral, usual = row(OF_MISTRAL, {sliding_window = 4096})},
  ministral = {is = LLAMA, read = of_mistral, usual = row(OF_MISTRAL, {sliding_window = 4096})},
  ministral3 = {is = row(LLAMA, {scales_queries = true}), read = of_ministral3, usual = row(OF_MISTRAL, {num_hidden_layers = 34,
    head_dim = 128, vocab_size = 131072, max_position_embeddings = 262144, rms_norm_eps = 1e-5, pad_token_id = 11,
    rope_parameters = {rope_type = "yarn", rope_theta = 1000000.0, factor = 16.0, original_max_position_embeddings = 16384,
    beta_fast = 32.0, beta_slow = 1.0, mscale_all_dim = 1.0, mscale = 1.0, llama_4_scaling_beta = 0.1}})},
  mixtral = {is = LLAMA, read = of_mixtral, usual = row(OF_MISTRAL, {num_local_experts = 8, num_experts_per_tok = 2,
    rms_norm_eps = 1e-5, rope_theta = 1000000})},
  qwen2 = {is = LLAMA, read = of_qwen2, usual = row(OF_QWEN, {sliding_window = 4096})},
  qwen3 = {is = LLAMA, read = of_qwen3, usual = row(OF_QWEN, {head_dim = 128, sliding_window = 4096})},
  qwen3_moe = {is = LLAMA, read = of_qwen_moe, usual = row(OF_QWEN, {hidden_size = 2048, num_hidden_layers = 24,
    num_key_value_heads = 4, intermediate_size = 6144, num_local_experts = 128, num_experts_per_tok = 8, moe_intermediate_size = 768,
    norm_topk_prob = false, sliding_window = 4096})},
  qwen2_moe = {is = LLAMA, read = of_qwen_moe, usual = {hidden_size = 2048, num_hidden_layers = 24, num_attention_heads = 16,
    num_key_value_heads = 16, intermediate_size = 5632, vocab_size = 151936, max_position_embeddings = 32768, num_experts = 60,
    num_experts_per_tok = 4, moe_intermediate_size = 1408, shared_expert_intermediate_size = 5632, norm_topk_prob = false,
    qkv_bias = true}},
  gemma = {is = GEMMA, read = of_gemma, usual = row(GEMMA_SIZES, {hidden_size = 3072, num_hidden_layers = 28,
    num_attention_heads = 16, num_key_value_heads = 16, intermediate_size = 24576, vocab_size = 256000,
    max_position_embeddings = 8192, tie_word_embeddings = true, pad_token_id = 0, hidden_act = "gelu_pytorch_tanh"})},
  gemma2 = {is = row(GEMMA, {norms = AROUND}), read = of_gemma, usual = row(GEMMA_SIZES, {vocab_size = 256000,
    max_position_embeddings = 8192, tie_word_embeddings = true, pad_token_id = 0, hidden_activation = "gelu_pytorch_tanh",
    attn_logit_softcapping = 50.0, final_logit_softcapping = 30.0})},
  gemma3_text = {is = row(GEMMA, {norms = AROUND}), read = of_gemma3, by_layer = true, usual = row(GEMMA_SIZES,
    {vocab_size = 262208, max_position_embeddings = 131072, tie_word_embeddings = true, pad_token_id = 0,
    hidden_activation = "gelu_pytorch_tanh", rope_theta = 1000000, rope_local_base_freq = 10000, sliding_window_pattern = 6})},
  phi3 = {is = PHI3, read = of_phi3, usual = {hidden_size = 3072, num_hidden_layers = 32, num_attention_heads = 32,
    intermediate_size = 8192, vocab_size = 32064, max_position_embeddings = 4096, rms_norm_eps = 1e-5, pad_token_id = 32000}},
  gpt_oss = {is = LLAMA, read = of_gpt_oss, usual = {hidden_size = 2880, num_hidden_layers = 36, num_attention_heads = 64,
    num_key_value_heads = 8, head_dim = 64, intermediate_size = 2880, vocab_size = 201088, max_position_embeddings = 131072,
    rms_norm_eps = 1e-5, rope_theta = 150000, attention_bias = true, sliding_window = 128, num_local_experts = 128,
    num_experts_per_tok = 4, swiglu_limit = 7.0, swiglu_alpha = 1.702, rope_parameters = {rope_type = "yarn", factor = 32.0,
    beta_fast = 32.0, beta_slow = 1.0, truncate = false, original_max_position_embeddings = 4096}}},
  olmoe = {is = LLAMA, read = of_olmoe, usual = row(OF_7B, {hidden_size = 2048, num_hidden_layers = 16,
    num_attention_heads = 16, intermediate_size = 2048, vocab_size = 50304, max_position_embeddings = 4096,
    rms_norm_eps = 1e-5, pad_token_id = 1, num_local_experts = 64, num_experts_per_tok = 8, norm_topk_prob = false})},
  deepseek_v3 = {is = row(LLAMA, {attention = {name = "self_attn", kind = "latent"}}), read = of_deepseek,
    also = {num_local_experts = "n_routed_experts"},
    usual = {hidden_size = 7168, num_hidden_layers = 61, num_attention_heads = 128, num_key_value_heads = 128,
    intermediate_size = 18432, vocab_size = 129280, max_position_embeddings = 4096, moe_intermediate_size = 2048,
    n_routed_experts = 256, n_shared_experts = 1, n_group = 8, topk_group = 4, routed_scaling_factor = 2.5,
    first_k_dense_replace = 3, q_lora_rank = 1536, kv_lora_rank = 512, qk_rope_head_dim = 64, qk_nope_head_dim = 128,
    v_head_dim = 128, num_experts_per_tok = 8, norm_topk_prob = true, rope_interleave = true}},
  olmo = {is = row(LLAMA, {norm = "layer_without_weight"}), read = of_olmo, usual = row(OF_7B, {vocab_size = 50304, pad_token_id = 1})},
  olmo2 = {is = row(LLAMA, {norms = BEHIND}),
    read = of_olmo2, usual = OF_OLMO},
  olmo3 = {is = row(LLAMA, {norms = BEHIND}), read = of_olmo2, by_layer = true, usual = row(OF_OLMO, {rope_theta = 500000,
    rope_local_base_freq = 500000, sliding_window = 4096})},
  exaone4 = {is = row(LLAMA, {norms = BEHIND}), read = of_exaone, usual = row(OF_7B, {intermediate_size = 16384, vocab_size = 102400,
    num_key_value_heads = 32, rms_norm_eps = 1e-5, sliding_window = 4096})},
  seed_oss = {is = LLAMA, read = of_seed_oss, usual = {hidden_size = 4096, num_hidden_layers = 64, num_attention_heads = 80,
    num_key_value_heads = 8, head_dim = 128, intermediate_size = 27648, vocab_size = 155136, max_position_embeddings = 524288,
    pad_token_id = 1, attention_bias = true, attention_out_bias = false, attention_dropout = 0.1, residual_dropout = 0.1}},
  arcee = {is = row(LLAMA, {mlp = UP_DOWN}), read = of_llama, usual = row(OF_7B, {hidden_size = 2560, intermediate_size = 18432,
    max_position_embeddings = 4096, rms_norm_eps = 1e-5, hidden_act = "relu2"})},
  ernie4_5 = {is = row(LLAMA, {pairs = true}), read = of_ernie, usual = {hidden_size = 1024, num_hidden_layers = 18,
    num_attention_heads = 16, num_key_value_heads = 2, head_dim = 128, intermediate_size = 3072, vocab_size = 103424,
    max_position_embeddings = 131072, rms_norm_eps = 1e-5, rope_theta = 500000, tie_word_embeddings = true, pad_token_id = 0,
    use_bias = false}},
  helium = {is = row(LLAMA, {pairs = true}), read = of_helium, usual = {hidden_size = 2560, num_hidden_layers = 24,
    num_attention_heads = 20, num_key_value_heads = 20, head_dim = 128, intermediate_size = 7040, vocab_size = 48000,
    max_position_embeddings = 4096, rms_norm_eps = 1e-8, rope_theta = 100000, pad_token_id = 3}},
  hunyuan_v1_dense = {is = row(LLAMA, {norms_rotated = true, query_names = {"query_layernorm", "key_layernorm"}}), read = of_hunyuan,
    usual = row(OF_7B, {vocab_size = 290943, rms_norm_eps = 1e-5, pad_token_id = 0})},
  starcoder2 = {is = row(LLAMA, {norm = "layer", mlp = {name = "mlp", kind = "plain", up = "c_fc", down = "c_proj"}}),
    read = of_starcoder, usual = {hidden_size = 3072, num_hidden_layers = 30, num_attention_heads = 24, num_key_value_heads = 2,
    intermediate_size = 12288, vocab_size = 49152, max_position_embeddings = 4096, norm_epsilon = 1e-5, use_bias = true,
    hidden_act = "gelu_pytorch_tanh", tie_word_embeddings = true, residual_dropout = 0.0, embedding_dropout = 0.0}},
  phi = {is = row(LLAMA, {files = row(FILES, {norm = "final_layernorm"}), norm = "layer", norms = {before_attention = "input_layernorm"},
    parallel = true, rotates_parts = true, attention = {name = "self_attn", kind = "separate", out = "dense"},
    mlp = {name = "mlp", kind = "plain", up = "fc1", down = "fc2"}}), read = of_phi, usual = {hidden_size = 2048,
    num_hidden_layers = 24, num_attention_heads = 32, intermediate_size = 8192, vocab_size = 51200, max_position_embeddings = 2048,
    layer_norm_eps = 1e-5, hidden_act = "gelu_new", partial_rotary_factor = 0.5, resid_pdrop = 0.0, embd_pdrop = 0.0}},
  stablelm = {is = row(LLAMA, {norm = "layer", rotates_parts = true}), read = of_stablelm, usual = {hidden_size = 2560,
    num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = 32, intermediate_size = 6912, vocab_size = 50304,
    max_position_embeddings = 4096, layer_norm_eps = 1e-5, partial_rotary_factor = 0.25, use_qkv_bias = false,
    use_parallel_residual = false}},
  nemotron = {is = row(LLAMA, {norm = "layer_plus_one", rotates_parts = true, mlp = UP_DOWN}), read = of_nemotron, usual = {
    hidden_size = 6144, num_hidden_layers = 32, num_attention_heads = 48, intermediate_size = 24576, vocab_size = 256000,
    max_position_embeddings = 4096, norm_eps = 1e-5, hidden_act = "relu2", partial_rotary_factor = 0.5}},
  cohere = {is = COHERE, read = of_cohere, usual = OF_COHERE},
  cohere2 = {is = COHERE, read = of_cohere, usual = row(OF_COHERE, {rope_theta = 10000, sliding_window = 4096})},
  glm4_moe = {is = row(LLAMA, {rotates_parts = true}), read = of_glm4_moe, also = {num_local_experts = "n_routed_experts"},
    usual = {hidden_size = 4096, num_hidden_layers = 46, num_attention_heads = 96, num_key_value_heads = 8, intermediate_size = 10944,
    vocab_size = 151552, max_position_embeddings = 131072, rms_norm_eps = 1e-5, moe_intermediate_size = 1408, num_experts_per_tok = 8,
    n_routed_experts = 128, n_shared_experts = 1, n_group = 1, topk_group = 1, routed_scaling_factor = 1.0, first_k_dense_replace = 1,
    norm_topk_prob = true, use_qk_norm = false, partial_rotary_factor = 0.5}},
  granitemoe = {is = LLAMA, read = of_granite, usual = row(OF_7B, {num_local_experts = 8, num_experts_per_tok = 2,
    embedding_multiplier = 1.0, logits_scaling = 1.0, residual_multiplier = 1.0, attention_multiplier = 1.0})},
  granite = {is = LLAMA, read = of_granite, usual = row(OF_7B, {embedding_multiplier = 1.0, logits_scaling = 1.0,
    residual_multiplier = 1.0, attention_multiplier = 1.0})},
  glm = {is = GLM, read = of_glm, usual = OF_GLM},
  glm4 = {is = row(GLM, {norms = {before_attention = "input_layernorm", behind_attention = "post_self_attn_layernorm",
    before_mlp = "post_attention_layernorm", behind_mlp = "post_mlp_layernorm"}}), read = of_glm, usual = OF_GLM},
  gpt2 = {is = GPT2, read = of_gpt2, also = NAMES_OF_GPT2, usual = {n_embd = 768, n_layer = 12, n_head = 12, vocab_size = 50257, n_positions = 1024,
    layer_norm_epsilon = 1e-5, activation_function = "gelu_new", tie_word_embeddings = true, resid_pdrop = 0.1,
    embd_pdrop = 0.1, attn_pdrop = 0.1, scale_attn_weights = true, scale_attn_by_inverse_layer_idx = false}},
  gptj = {is = row(GPT2, {files = row(GPT2.files, {positions = false}), norms = {before_attention = "ln_1"}, parallel = true,
    pairs = true, rotates_parts = true, attention = {name = "attn", kind = "separate", out = "out_proj"},
    mlp = {name = "mlp", kind = "plain", up = "fc_in", down = "fc_out"}}), read = of_gptj,
    also = NAMES_OF_GPT2, usual = {n_embd = 4096, n_layer = 28, n_head = 16, vocab_size = 50400, n_positions = 2048, rotary_dim = 64,
    layer_norm_epsilon = 1e-5, activation_function = "gelu_new", resid_pdrop = 0.0, embd_pdrop = 0.0, attn_pdrop = 0.0}},
  opt = {is = {files = {prefix = "model.decoder.", embed = "embed_tokens", positions = "embed_positions", first_position = 2,
    layers = "layers", norm = "final_layer_norm", head = "lm_head"}, pads = true, norm = "layer",
    norms = {before_attention = "self_attn_layer_norm", before_mlp = "final_layer_norm"},
    attention = {name = "self_attn", kind = "separate", out = "out_proj"},
    mlp = {name = "mlp", kind = "plain", up = "fc1", down = "fc2", in_layer = true}}, read = of_opt, usual = {hidden_size = 768,
    num_hidden_layers = 12, num_attention_heads = 12, ffn_dim = 3072, vocab_size = 50272, max_position_embeddings = 2048,
    activation_function = "relu", dropout = 0.1, pad_token_id = 1, tie_word_embeddings = true}},
  bloom = {is = row(FALCON, {files = row(FALCON.files, {embed_norm = "word_embeddings_layernorm"}), norms = LLAMA.norms,
    attention = row(FALCON.attention, {kind = "grouped"})}), read = of_bloom,
    also = {n_embed = "hidden_size", num_hidden_layers = "n_layer", num_attention_heads = "n_head"}, usual = {hidden_size = 64,
    n_layer = 2, n_head = 8, vocab_size = 250880, layer_norm_epsilon = 1e-5, hidden_dropout = 0.0, tie_word_embeddings = true}},
  mpt = {is = {files = {prefix = "transformer.", embed = "wte", layers = "blocks", norm = "norm_f", head = "lm_head"},
    norm = "layer_without_bias", norms = {before_attention = "norm_1", before_mlp = "norm_2"},
    attention = {name = "attn", kind = "joined", joined = "Wqkv", out = "out_proj"},
    mlp = {name = "ffn", kind = "plain", up = "up_proj", down = "down_proj"}}, read = of_mpt,
    also = {hidden_size = "d_model", num_hidden_layers = "n_layers", num_attention_heads = "n_heads",
    max_position_embeddings = "max_seq_len"}, usual = {d_model = 2048, n_layers = 24, n_heads = 16, vocab_size = 50368,
    max_seq_len = 2048, layer_norm_epsilon = 1e-5, tie_word_embeddings = true}},
  gpt_neox = {is = NEOX, read = of_gpt_neox, usual = {hidden_size = 6144, num_hidden_layers = 44, num_attention_heads = 64,
    intermediate_size = 24576, vocab_size = 50432, max_position_embeddings = 2048, layer_norm_eps = 1e-5, attention_bias = true,
    hidden_act = "gelu", use_parallel_residual = true, rotary_pct = 0.25, rotary_emb_base = 10000}},
  falcon = {is = FALCON, read = of_falcon, usual = {hidden_size = 4544, num_hidden_layers = 32, num_attention_heads = 71,
    vocab_size = 65024, max_position_embeddings = 2048, layer_norm_epsilon = 1e-5, activation = "gelu",
    tie_word_embeddings = true, multi_query = true, parallel_attn = true, bias = false, alibi = false,
    new_decoder_architecture = false}},
}

-- The known names, in order.
function M.known()
  local names = {}
  for name in pairs(M.table) do names[#names + 1] = name end
  table.sort(names)
  return names
end

local function rotary_of(at, layer_type)
  local theta, scaling, part = hugging_face.rope(at, layer_type)
  return {theta = theta, scaling = scaling, part = part}
end

-- The model of a config.json, or of a table of such fields. types: those that the plan takes, by default all. known: values
-- {name, value} of fields; others are an error.
function M.read(file, types, known)
  local config = hugging_face.config(file, types or M.known(), function(kind)
    local of = M.table[kind]
    return of and row(ALL, of.usual)
  end, function(kind) return (M.table[kind] or {}).also end)
  for _, field in ipairs(known or {}) do config.only(table.unpack(field)) end
  local at = config.at
  for _, kind in ipairs(at.layer_types or {}) do
    if kind ~= "full_attention" and kind ~= "sliding_attention" then
      error(config.path .. ": layer_types has '" .. kind .. "'; known are full_attention and sliding_attention")
    end
  end
  local family = M.table[at.model_type]
  local c = row(family.is, {model_type = at.model_type, tied = at.tie_word_embeddings})
  family.read(c, config)
  c.positions = c.positions or at.max_position_embeddings or 2048
  c.pad = c.pads and config.pad(c.vocab) or nil
  if config.prefix then c.files = row(c.files, {prefix = config.prefix, head_file = config.head}) end
  if c.files.positions or c.alibi then return c end
  c.rotary = c.rotary or rotary_of(at, family.by_layer and "full_attention")
  c.rotary.part = c.rotary.part or 1
  if c.rotary.part ~= 1 and not c.rotates_parts then
    error(config.path .. ": partial_rotary_factor is " .. c.rotary.part .. ", and transformers' " .. at.model_type
      .. " rotates whole heads: leave it out, or say 1")
  end
  if known and c.rotary.part ~= 1 then
    error(config.path .. ": partial_rotary_factor is " .. c.rotary.part .. "; this plan knows 1 alone")
  end
  if c.scales_queries then
    local beta, length = hugging_face.rope_fields(at).llama_4_scaling_beta, c.rotary.scaling.original_max_position_embeddings
    if not beta or not length then
      error(config.path .. ": transformers' " .. at.model_type .. " needs llama_4_scaling_beta and original_max_position_embeddings in "
        .. "rope_parameters")
    end
    c.query_scale = {beta = beta, length = length}
  end
  c.sliding_rotary = family.by_layer and rotary_of(at, "sliding_attention") or nil
  return c
end

-- A small model of a family, to try it. fields: of config.json, with model_type.
function M.small(fields)
  local c = M.read(row({hidden_size = 64, num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 2,
    intermediate_size = 176, vocab_size = 256, max_position_embeddings = 64}, fields))
  c.head_dim, c.pad, c.window, c.queries_by, c.batch = fields.head_dim, nil, nil, nil, 4
  return c
end

-- Sets the sizes that follow from others.
function M.complete(c)
  c.n_kv_heads, c.head_dim, c.hidden = c.n_kv_heads or c.n_heads, c.head_dim or c.dim // c.n_heads, c.hidden or 4 * c.dim
  return c
end

return M
