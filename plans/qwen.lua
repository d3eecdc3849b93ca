-- Qwen 2.5, Qwen 3 and Mistral from a Hugging Face folder or from the start: Llama's layers, with biases at q,
-- k and v (Qwen 2.5), norms of each head of q and k (Qwen 3), or a window (Mistral). Tensor parallel within the
-- layers, sequence parallel between them, loss parallel at the end.
--
--   tpgen plans/qwen.lua -o out/ -D config=Qwen3-0.6B/config.json -D tp=2 -D seq=4096
--   out/run.sh --weights Qwen3-0.6B --data train.bin
--
-- tpgen plans/qwen.lua --help lists the settings.

local families, causal_lm = require "lib.families", require "lib.causal_lm"

local c = args.config and families.read(args.config, {"qwen2", "qwen3", "mistral", "ministral"})
  or families.small{model_type = "qwen3"}
local args = causal_lm.settings(c, {
  "dim", "n_layers", "n_heads", "n_kv_heads", "head_dim", "hidden", "vocab", "seq", "theta", {"eps", 1e-6},
  "tied", "pad",
  {"head_norms", true, "q and k have a norm of each head (Qwen 3)"},
  {"qkv_bias", false, "q, k and v have a bias (Qwen 2.5)"},
}, {head_norms = c.query_norms ~= nil, qkv_bias = c.bias and c.bias.qkv}, 8192)
c.query_norms = args.head_norms and "heads" or nil
c.bias = {qkv = args.qkv_bias, out = c.bias and c.bias.out}
return causal_lm.train(c, args)
