-- Phi-3 from a Hugging Face folder or from the start: Llama's layers, with q, k, v and gate, up side by
-- side in one weight each. Tensor parallel within the layers, sequence parallel between them, loss
-- parallel at the end.
--
--   tpgen plans/phi3.lua -o out/ -D config=Phi-3-mini-4k-instruct/config.json -D tp=2 -D seq=4096
--   out/run.sh --weights Phi-3-mini-4k-instruct --data train.bin
--
-- tpgen plans/phi3.lua --help lists the settings.

local families, causal_lm = require "lib.families", require "lib.causal_lm"

local c = args.config and families.read(args.config, {"phi3"}) or families.small{model_type = "phi3"}
local args = causal_lm.settings(c, {
  "dim", "n_layers", "n_heads", "n_kv_heads", "hidden", "vocab", "seq", "theta", "eps", "tied", "pad",
  "window",
}, {window = c.window and c.window(0)}, 4096)
function c.window() return args.window end
return causal_lm.train(c, args)
