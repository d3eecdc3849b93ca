-- The shapes of plans/moe.lua's models: presets, and what a Hugging Face config.json says.

local families = require "lib.families"

local M = {}

-- What files call a layer's router and experts.
local MIXTRAL, QWEN = families.MIXTRAL, families.QWEN
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

local function from_config(path)
  local c = families.read(path, {"mixtral", "qwen3_moe", "olmoe", "deepseek_v3"}, {{"attention_bias", false},
    {"attention_dropout", 0}, {"decoder_sparse_step", 1}})
  local e = c.experts
  local function has_experts(i) return not e.of_layer or e.of_layer(i) end
  local dense = 0
  while dense < c.n_layers and not has_experts(dense) do dense = dense + 1 end
  for i = dense, c.n_layers - 1 do
    if not has_experts(i) then error(path .. ": layer " .. i .. " has no experts; those behind the first " .. dense
      .. " must have some: plans/causal_lm.lua takes this model") end
  end
  c.theta, c.scaling, c.seq = c.rotary.theta, c.rotary.scaling, math.min(c.positions, 8192)
  c.norms, c.window = c.query_norms, c.window and c.window(0)
  c.dense, c.dense_hidden, c.hidden = dense, c.hidden, e.hidden
  c.experts, c.top_k, c.normalize, c.file_names = e.count, e.top_k, e.normalize, e.files
  c.router, c.weight_scale, c.bias_balance = e.router, e.scale, e.balanced and 1e-3
  c.groups, c.top_groups, c.shared = e.groups, e.top_groups, e.shared
  return c
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
function M.of_experts(files, name) return families.expert_name("model.layers", files, name) end

return M
