-- The shapes of plans/moe.lua's models: presets, and what a Hugging Face config.json says.

local hugging_face = require "lib.hugging_face"

local M = {}

-- What files call a layer's router and experts.
local MIXTRAL = {gate = "block_sparse_moe.gate.weight", experts = "block_sparse_moe.experts.{}.",
  gate_proj = "w1.weight", up_proj = "w3.weight", down_proj = "w2.weight"}
local QWEN = {gate = "mlp.gate.weight", experts = "mlp.experts.{}.", gate_proj = "gate_proj.weight",
  up_proj = "up_proj.weight", down_proj = "down_proj.weight"}
-- As transformers has them in memory: one tensor of all experts, in which a gate's rows stand before those of `up`.
local FUSED = {gate = "mlp.gate.weight", experts = "mlp.experts.", down_proj = "down_proj",
  gate_proj = {tensor = "gate_up_proj", dim = 1, part = 1, of = 2},
  up_proj = {tensor = "gate_up_proj", dim = 1, part = 2, of = 2}}

-- bound: of the presets where a rank has several experts of each layer.
local presets = {
  debug = {dim = 64, n_layers = 2, n_heads = 4, n_kv_heads = 2, experts = 8, top_k = 2, hidden = 96, vocab = 256,
    seq = 64, batch = 4, file_names = MIXTRAL},
  ["8x7b"] = {dim = 4096, n_layers = 32, n_heads = 32, n_kv_heads = 8, experts = 8, top_k = 2, hidden = 14336,
    vocab = 32000, theta = 1e6, seq = 4096, file_names = MIXTRAL},
  ["30b-a3b"] = {dim = 2048, n_layers = 48, n_heads = 32, n_kv_heads = 4, head_dim = 128, experts = 128, top_k = 8,
    hidden = 768, vocab = 151936, theta = 1e6, eps = 1e-6, norms = "heads", seq = 4096, bound = 2, file_names = QWEN},
  ["deepseek-v3"] = {dim = 7168, n_layers = 61, n_heads = 128, experts = 256, top_k = 8, hidden = 2048, vocab = 129280,
    theta = 10000, eps = 1e-6, seq = 4096, bound = 2, file_names = QWEN, router = "sigmoid", groups = 8, top_groups = 4,
    weight_scale = 2.5, bias_balance = 1e-3, shared = 2048, dense = 3, dense_hidden = 18432,
    scaling = {rope_type = "yarn", factor = 40, beta_fast = 32, beta_slow = 1, mscale = 1, mscale_all_dim = 1,
      original_max_position_embeddings = 4096},
    latent = {queries = 1536, keys = 512, nope = 128, rope = 64, value = 128, pairs = true}},
}

local function of_mixtral(known, config)
  known.file_names, known.normalize, known.window = MIXTRAL, true, config.at.sliding_window
end

local function of_qwen(known, config)
  config.only("decoder_sparse_step", 1)
  if #(config.at.mlp_only_layers or {}) > 0 then error("mlp_only_layers: this plan's layers all have experts") end
  known.hidden, known.norms = config.need("moe_intermediate_size"), "heads"
  known.window = config.at.use_sliding_window and config.at.sliding_window or nil
end

local function of_olmoe(known, config) known.norms, known.eps = "whole", config.at.rms_norm_eps or 1e-5 end

local function of_deepseek(known, config)
  local need, at = config.need, config.at
  config.only("scoring_func", "sigmoid")
  config.only("topk_method", "noaux_tc")
  config.only("moe_layer_freq", 1)
  known.experts, known.hidden = need("n_routed_experts"), need("moe_intermediate_size")
  known.router, known.weight_scale, known.bias_balance = "sigmoid", need("routed_scaling_factor"), 1e-3
  known.groups, known.top_groups = at.n_group or 1, at.topk_group or 1
  known.shared = (at.n_shared_experts or 0) * known.hidden
  known.dense, known.dense_hidden = at.first_k_dense_replace or 0, need("intermediate_size")
  known.latent = {queries = at.q_lora_rank, keys = need("kv_lora_rank"), nope = need("qk_nope_head_dim"),
    rope = need("qk_rope_head_dim"), value = need("v_head_dim"), pairs = at.rope_interleave ~= false}
end

local OF = {mixtral = of_mixtral, qwen3_moe = of_qwen, olmoe = of_olmoe, deepseek_v3 = of_deepseek}

local function from_config(path)
  local config = hugging_face.config(path, {"mixtral", "qwen3_moe", "olmoe", "deepseek_v3"})
  local need, at = config.need, config.at
  config.only("hidden_act", "silu")
  config.only("attention_bias", false)
  config.only("clip_qkv", nil)
  local theta, scaling = hugging_face.rope(at)
  local known = {
    dim = need("hidden_size"), n_layers = need("num_hidden_layers"), n_heads = need("num_attention_heads"),
    n_kv_heads = at.num_key_value_heads, head_dim = at.head_dim, vocab = need("vocab_size"), theta = theta,
    scaling = scaling, eps = at.rms_norm_eps or 1e-6, tied = at.tie_word_embeddings,
    top_k = need("num_experts_per_tok"), experts = at.num_local_experts or at.num_experts,
    seq = math.min(at.max_position_embeddings or 2048, 8192), pad = config.pad(need("vocab_size")),
    file_names = QWEN, hidden = at.intermediate_size, normalize = at.norm_topk_prob == true,
  }
  OF[at.model_type](known, config)
  return known
end

local function of_preset(preset)
  return presets[preset or "debug"]
    or error("there is no preset '" .. tostring(preset) .. "': say 8x7b, 30b-a3b, deepseek-v3 or debug")
end

-- Of a config.json, a preset, or the small one. files: "fused", or nil: a tensor for each expert.
function M.of(config, preset, files)
  if config and preset then error("-D config and -D preset both say the model's shape") end
  if files ~= nil and files ~= "fused" then error("-D files=" .. tostring(files) .. ": say fused, or leave it out") end
  local known = config and from_config(config) or of_preset(preset)
  if files then known.file_names = FUSED end
  return known
end

-- What files call a layer's parameter of its experts: a name, or a part of a tensor.
function M.of_experts(files, name)
  local prefix, file = "model.layers.*." .. files.experts, files[name]
  if type(file) == "string" then return prefix .. file end
  return {tensor = prefix .. file.tensor, dim = file.dim, part = file.part, of = file.of}
end

return M
