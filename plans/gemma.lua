-- Gemma and Gemma 2 from a Hugging Face folder or from the start: norms that multiply by 1 + weight, a scaled
-- embedding; Gemma 2 also has norms behind attention and MLP, softcaps, and windows of every second layer. Tensor
-- parallel within the layers, sequence parallel between them, loss parallel at the end.
--
--   tpgen plans/gemma.lua -o out/ -D config=gemma-2-2b/config.json -D tp=2 -D seq=4096
--   out/run.sh --weights gemma-2-2b --data train.bin
--
-- tpgen plans/gemma.lua --help lists the settings.

local families, causal_lm = require "lib.families", require "lib.causal_lm"

local c = args.config and families.read(args.config, {"gemma", "gemma2"})
  or families.small{model_type = "gemma2", head_dim = 16, query_pre_attn_scalar = 16}
local args = causal_lm.settings(c, {
  "dim", "n_layers", "n_heads", "n_kv_heads", "head_dim", "hidden", "vocab", "seq", "theta", {"eps", 1e-6},
  {"tied", true}, "pad",
  {"norms_behind", true, "norms behind attention and MLP, too (Gemma 2)"},
  {"queries_by", function(a) return a.head_dim end, "scores are divided by its root; by default head_dim", type = "number"},
}, {norms_behind = c.norms.behind_mlp ~= nil, queries_by = c.queries_by}, 8192)
c.norms = families.table[args.norms_behind and "gemma2" or "gemma"].is.norms
c.scale = args.queries_by ^ -0.5
return causal_lm.train(c, args)
